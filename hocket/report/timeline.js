// Spans on lanes, runs above each other, one trace a kind and run: only what a pixel can show is drawn.
if (report.timelines) {
  const figure = report.timelines;
  const plot = document.getElementById("timeline");
  const selector = document.getElementById("lanes");
  const laneHeight = 19, processGap = 10, captionHeight = 34, axisHeight = 34;
  const bar = 14;  // pixels
  const memoryHeight = 62, memoryGap = 12;  // of what a worker holds, below its panel's lanes
  const seam = 4;  // spans wider than this many pixels are set apart from their neighbours
  const end = Math.max(...figure.panels.map((panel) => panel.end), 1e-9) * 1.005;
  const usedKinds = figure.kinds.map((_, k) => k).filter((k) => figure.panels.some((panel) => panel.kind.includes(k)));
  const hidden = new Set();

  for (const panel of figure.panels) panel.stop = panel.start.map((start, i) => start + panel.length[i]);

  // Span indices of each lane and kind, in order of start.
  for (const panel of figure.panels) {
    panel.spansOf = panel.lanes.map(() => figure.kinds.map(() => []));
    panel.lane.forEach((lane, i) => panel.spansOf[lane][panel.kind[i]].push(i));
  }

  /** Lanes to show with their heights in pixels from the top; processes are set apart. */
  function placedLanes(panel) {
    const lanes = [];
    let y = 0, before = null;
    panel.lanes.forEach((lane, index) => {
      if (selector.value !== "all" && lane.process !== processes[selector.value]) return;
      if (before !== null && before !== lane.process) y += processGap;
      lanes.push({index, lane, first: before !== lane.process, y: y + laneHeight / 2});
      before = lane.process;
      y += laneHeight;
    });
    return {lanes, height: Math.max(y, laneHeight)};
  }

  const processes = [...new Set(figure.panels.flatMap((panel) => panel.lanes.map((lane) => lane.process)))];
  selector.append(new Option("all", "all"), ...processes.map((process, i) => new Option(process, i)));
  selector.value = figure.panels.some((panel) => panel.lanes.length > 40) ? "0" : "all";

  /** Outlines of one kind's bars: neighbours that no pixel parts are one bar, wider spans get a seam. */
  function outlines(panel, placed, kind, range, perPixel) {
    const x = [null], y = [null];  // a trace without points would lose its place in the legend
    const margin = range[1] - range[0];
    const shown = (i) => panel.stop[i] >= range[0] - margin && panel.start[i] <= range[1] + margin;
    for (const {index, y: at} of placed.lanes) {
      const add = (start, stop) => {
        x.push(start, stop, stop, start, null);
        y.push(at - bar / 2, at - bar / 2, at + bar / 2, at + bar / 2, null);
      };
      let open = null;
      for (const i of panel.spansOf[index][kind].filter(shown)) {
        const start = panel.start[i], stop = panel.stop[i];
        const wide = stop - start > seam * perPixel;
        if (open && !wide && start - open[1] < 0.1 * perPixel) {
          open[1] = Math.max(open[1], stop);
          continue;
        }
        if (open) add(...open);
        open = wide ? null : [start, stop];
        if (wide) add(start, stop - perPixel);
      }
      if (open) add(...open);
    }
    return {x, y};
  }

  const coarse = window.matchMedia("(pointer: coarse)").matches;  // a drag scrolls the page there
  let whenDrawn = () => {};
  let state = null;  // what was drawn last, for the pointer and for zooming

  const memoryAxis = (p) => String(figure.panels.length + p + 1);

  /** Steps of the bytes that are held, one trace a panel that has them. */
  function memoryTraces() {
    return figure.panels.flatMap((panel, p) => panel.memory ? [{
      x: [0, ...panel.memory.at, panel.end], y: [0, ...panel.memory.held, panel.memory.held.at(-1)],
      type: "scatter", mode: "lines", line: {shape: "hv", width: 1.5, color: colour("series-8"), simplify: false}, fill: "tozeroy",
      fillcolor: colour("series-8") + "40", hoverinfo: "skip", xaxis: p ? "x" + (p + 1) : "x", yaxis: "y" + memoryAxis(p),
    }] : []);
  }

  function traces(range) {
    return [...spanTraces(range), ...memoryTraces()];
  }

  function spanTraces(range) {
    const perPixel = (range[1] - range[0]) / state.innerWidth;
    return figure.panels.flatMap((panel, p) => usedKinds.map((kind) => ({
      ...outlines(panel, state.placed[p], kind, range, perPixel),
      type: "scatter", mode: "none", fill: "toself", hoverinfo: "skip", name: figure.kinds[kind], 
      xaxis: p ? "x" + (p + 1) : "x", yaxis: p ? "y" + (p + 1) : "y", visible: !hidden.has(kind),
      fillcolor: colour("kind-" + figure.kinds[kind]), line: {simplify: false},
    })));
  }

  function draw() {
    const range = plot.layout ? [...plot.layout.xaxis.range] : [0, end];
    const placed = figure.panels.map(placedLanes);
    const width = plot.clientWidth, narrow = width < 640;
    const labels = placed.flatMap((rows) => rows.lanes.map(({lane, first}) => laneLabel(lane, first, narrow)));
    const memoryLabel = (panel) => panel.memory ? ["live memory", panel.memory.most_text] : [];
    const longest = Math.max(0, ...[...labels, ...figure.panels.flatMap(memoryLabel)].map((label) => label.length));
    const left = Math.min(20 + longest * (narrow ? 5.8 : 6.8), width * 0.4);
    const above = 22;  // the button that saves the picture is there
    const below = figure.panels.map((panel) => panel.memory ? memoryGap + memoryHeight : 0);
    const blocks = placed.map((rows, p) => captionHeight + rows.height + below[p] + axisHeight);
    const height = above + blocks.reduce((a, b) => a + b, 0) + 18;
    const inner = height - above - 18;
    state = {placed, innerWidth: width - left - 14, left, tops: []};
    const layout = {
      ...baseLayout(), width, height, margin: {l: left, r: 14, t: above, b: 18}, dragmode: coarse ? false : "zoom", hovermode: false,
      showlegend: false,
      annotations: [], shapes: [],
    };
    let offset = 0;
    figure.panels.forEach((panel, p) => {
      const rows = placed[p], suffix = p ? String(p + 1) : "", last = p === figure.panels.length - 1;
      const top = offset + captionHeight, bottom = top + rows.height;
      offset += blocks[p];
      state.tops.push(above + top);
      layout["xaxis" + suffix] = {
        ...baseAxis(last ? `time [${report.unit.symbol}]` : ""), range: [...range], autorange: false,
        anchor: "y" + (panel.memory ? memoryAxis(p) : suffix),
        ticks: "outside", ticklen: 4, tickcolor: colour("rule"), ...(p ? {matches: "x"} : {}),
      };
      layout["yaxis" + suffix] = {
        ...baseAxis(""), range: [rows.height, 0], domain: [1 - bottom / inner, 1 - top / inner], fixedrange: true, showgrid: false,
        tickvals: rows.lanes.map((lane) => lane.y), ticktext: rows.lanes.map(({lane, first}) => tickText(lane, first, narrow)),
        tickfont: {size: narrow ? 11 : 12, color: colour("faint")}, anchor: "x" + suffix,
      };
      if (panel.memory) layout["yaxis" + memoryAxis(p)] = {
        ...baseAxis(""), range: [0, 1.08 * panel.memory.most], domain: [1 - (bottom + below[p]) / inner, 1 - (bottom + memoryGap) / inner],
        fixedrange: true, showgrid: false, zeroline: true, zerolinecolor: colour("rule"), tickvals: [0, panel.memory.most / 2, panel.memory.most],
        ticktext: ["0", "live memory", panel.memory.most_text], tickfont: {size: narrow ? 11 : 12, color: colour("faint")}, anchor: "x" + suffix,
      };
      layout.annotations.push({
        xref: "paper", x: 0, xanchor: "left", yref: "paper", y: 1 - top / inner, yanchor: "bottom", yshift: 4, showarrow: false,
        xshift: narrow ? -left : 0, text: captionText(panel, Math.floor((width - (narrow ? 14 : left + 14)) / 7.5)), font: {size: 14, color: colour("ink")},
      });
      layout.shapes.push({
        type: "line", xref: "x" + suffix, yref: "y" + suffix, x0: panel.end, x1: panel.end, y0: 0, y1: rows.height + below[p],
        line: {color: colour("ink"), width: 1, dash: "dot"},
      });
    });
    Plotly.react(plot, traces(range), layout, {...plotOptions, doubleClick: false, showTips: false});
    whenDrawn();
  }

  /** Which run it is, when it ends, and its own title as far as there is room. */
  function captionText(panel, length) {
    const ends = `, ends at ${timeText(panel.end)}`, room = length - panel.caption.length - ends.length - 3;
    const more = (room >= 0 ? ends : "") + (panel.title && room > 8 ? "  " + shortened(panel.title, room) : "");
    return `<b>${plain(shortened(panel.caption, length))}</b><span style="color:${colour("faint")}">${plain(more)}</span>`;
  }

  function laneLabel(lane, first, narrow) {
    return first ? `${shortened(lane.process, narrow ? 12 : 20)}  ${shortened(lane.name, narrow ? 12 : 20)}` : shortened(lane.name, narrow ? 12 : 20);
  }

  function tickText(lane, first, narrow) {
    const name = plain(shortened(lane.name, narrow ? 12 : 20));
    return first ? `<span style="color:${colour("ink")}">${plain(shortened(lane.process, narrow ? 12 : 20))}</span>  ${name}` : name;
  }

  keepDrawn(draw);
  walkTimeline({figure, plot, selector, hidden, usedKinds, end, bar, laneHeight, draw, traces, drawn: () => state, onDrawn: (then) => { whenDrawn = then; }});
}
