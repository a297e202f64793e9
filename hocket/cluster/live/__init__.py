"""The cluster's manager of real jobs: the simulator's engine, driven by what processes say."""
