// Pointing at a timeline's spans, going from one to the next by keyboard, zooming, and hiding kinds.
function walkTimeline({figure, plot, selector, hidden, usedKinds, end, bar, laneHeight, draw, traces, drawn, onDrawn}) {
  const tooltip = document.getElementById("tooltip"), marker = document.getElementById("selected");
  const labels = figure.labels ?? figure.kinds;  // a cluster's tasks are called by their kinds
  let cursor = null;  // the span that the keyboard is at: its panel, lane and index

  /** The span under the pointer, or the nearest within three pixels. */
  function spanAt(event) {
    const box = plot.getBoundingClientRect(), range = plot.layout.xaxis.range;
    const perPixel = (range[1] - range[0]) / drawn().innerWidth;
    const across = event.clientX - box.left - drawn().left, down = event.clientY - box.top;
    if (across < 0 || across > drawn().innerWidth) return null;
    const time = range[0] + across * perPixel;
    for (const [p, panel] of figure.panels.entries()) {
      const row = drawn().placed[p].lanes.find(({y}) => Math.abs(drawn().tops[p] + y - down) <= laneHeight / 2);
      if (!row) continue;
      let best = null, distance = 3 * perPixel;
      panel.spansOf[row.index].forEach((spans, kind) => {
        if (hidden.has(kind)) return;
        for (const i of spans) {
          const away = Math.max(panel.start[i] - time, time - panel.stop[i], 0);
          if (away < distance) [best, distance] = [i, away];
        }
      });
      return best === null ? null : {panel, lane: row.lane, i: best};
    }
    return null;
  }

  function spanText({panel, lane, i}) {
    return `${figure.names[panel.name[i]]}\n${labels[panel.kind[i]]} · ${lane.process}, ${lane.name}\n` +
      `start ${timeText(panel.start[i])} · duration ${timeText(panel.length[i])}`;
  }

  function tell(text, x, y) {
    tooltip.hidden = false;
    tooltip.textContent = text;
    const box = tooltip.getBoundingClientRect();
    tooltip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8)) + "px";
    tooltip.style.top = (y + 18 + box.height > window.innerHeight ? y - box.height - 10 : y + 18) + "px";
  }

  function showSpan(event) {
    const found = event.buttons ? null : spanAt(event);
    if (found) tell(spanText(found), event.clientX, event.clientY);
    else if (!cursor) tooltip.hidden = true;
  }

  /** The lanes that are shown, of all panels from top to bottom, with the spans of each that are drawn. */
  function shownLanes() {
    return figure.panels.flatMap((panel, p) => drawn().placed[p].lanes.map((row) => ({
      panel, p, row, spans: panel.spansOf[row.index].filter((_, kind) => !hidden.has(kind)).flat().sort((a, b) => panel.start[a] - panel.start[b]),
    }))).filter(({spans}) => spans.length);
  }

  /** Outline the span that the keyboard is at, as far as it is in view. */
  function placeMarker() {
    marker.hidden = true;
    if (!cursor) return;
    const {panel, p, row, i} = cursor, range = plot.layout.xaxis.range, perPixel = (range[1] - range[0]) / drawn().innerWidth;
    const from = Math.max(0, (panel.start[i] - range[0]) / perPixel), to = Math.min(drawn().innerWidth, (panel.stop[i] - range[0]) / perPixel);
    if (to < 0 || from > drawn().innerWidth) return;
    marker.hidden = false;
    marker.style.left = plot.offsetLeft + drawn().left + from - 2 + "px";
    marker.style.width = Math.max(5, to - from + 4) + "px";
    marker.style.top = plot.offsetTop + drawn().tops[p] + row.y - bar / 2 - 2 + "px";
    marker.style.height = bar + 4 + "px";
  }

  function goTo({panel, p, row}, i) {
    cursor = {panel, p, row, lane: row.lane, i};
    const range = plot.layout.xaxis.range, width = range[1] - range[0];
    if (panel.start[i] < range[0] || panel.start[i] > range[1]) zoomTo(panel.start[i] - width / 2, width);
    placeMarker();
    const box = (marker.hidden ? plot : marker).getBoundingClientRect();
    tell(spanText(cursor), box.left, box.bottom - 10);
  }

  /** One span or lane on from where the keyboard is; from nowhere, to the first span in view. */
  function step(across, down) {
    const lanes = shownLanes(), range = plot.layout.xaxis.range;
    if (!lanes.length) return;
    const at = cursor ? lanes.findIndex(({panel, row}) => panel === cursor.panel && row.index === cursor.row.index) : -1;
    if (at < 0) {
      goTo(lanes[0], lanes[0].spans.find((i) => lanes[0].panel.stop[i] >= range[0]) ?? lanes[0].spans[0]);
      return;
    }
    const lane = lanes[Math.max(0, Math.min(lanes.length - 1, at + down))];
    if (down) {
      const time = cursor.panel.start[cursor.i], away = (i) => Math.abs(lane.panel.start[i] - time);
      goTo(lane, lane.spans.reduce((best, i) => away(i) < away(best) ? i : best));
    } else {
      const place = lane.spans.indexOf(cursor.i) + across;
      goTo(lane, lane.spans[Math.max(0, Math.min(lane.spans.length - 1, place))]);
    }
  }

  function zoomTo(from, width) {
    const kept = Math.min(width, end), begin = Math.max(0, Math.min(from, end - kept));
    Plotly.relayout(plot, {"xaxis.range": [begin, begin + kept]});
  }

  function zoom(factor) {
    const range = plot.layout.xaxis.range, width = (range[1] - range[0]) * factor;
    const middle = cursor ? (cursor.panel.start[cursor.i] + cursor.panel.stop[cursor.i]) / 2 : (range[0] + range[1]) / 2;
    zoomTo(middle - width / 2, width);
  }

  const keys = {
    ArrowRight: () => step(1, 0), ArrowLeft: () => step(-1, 0), ArrowDown: () => step(0, 1), ArrowUp: () => step(0, -1),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: () => zoomTo(0, end),
    Escape: () => { cursor = null; tooltip.hidden = true; placeMarker(); },
  };

  /** A box for each kind that hides it and shows it again. */
  function offerKinds() {
    document.getElementById("kinds").append(...usedKinds.map((kind) => {
      const label = document.createElement("label"), box = document.createElement("input"), swatch = document.createElement("span");
      box.type = "checkbox";
      box.checked = true;
      swatch.className = "swatch";
      swatch.style.background = `var(--kind-${figure.kinds[kind]})`;
      label.append(box, swatch, labels[kind]);
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(kind);
        else hidden.add(kind);
        draw();
      });
      return label;
    }));
  }

  offerKinds();
  onDrawn(placeMarker);
  plot.on("plotly_relayout", () => {
    const fresh = traces(plot.layout.xaxis.range);
    Plotly.restyle(plot, {x: fresh.map((trace) => trace.x), y: fresh.map((trace) => trace.y)});
    placeMarker();
  });
  plot.on("plotly_doubleclick", () => zoomTo(0, end));
  for (const [id, change] of [["reset", () => zoomTo(0, end)], ["zoom-in", () => zoom(0.5)], ["zoom-out", () => zoom(2)]]) {
    document.getElementById(id).addEventListener("click", change);
  }
  selector.addEventListener("change", () => { cursor = null; draw(); });
  plot.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  plot.addEventListener("mousemove", showSpan);
  plot.addEventListener("mouseleave", () => { tooltip.hidden = true; });
  plot.addEventListener("blur", () => { cursor = null; tooltip.hidden = true; placeMarker(); });
}
