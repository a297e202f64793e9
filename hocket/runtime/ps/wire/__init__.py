"""Everything both sides know: messages, transports, the layout of parameters, the order of transfers."""
