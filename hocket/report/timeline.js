// Spans on lanes, the worst run above the best, one trace a kind and run: only what a pixel can show is drawn.
if (report.timelines) {
  const figure = report.timelines;
  const plot = document.getElementById("timeline");
  const selector = document.getElementById("lanes");
  const tooltip = document.getElementById("tooltip");
  const laneHeight = 19, processGap = 10, captionHeight = 34, axisHeight = 34;
  const bar = 14;  // pixels
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

  let state = null;  // what was drawn last, for the pointer and for zooming

  function traces(range) {
    const perPixel = (range[1] - range[0]) / state.innerWidth;
    return figure.panels.flatMap((panel, p) => usedKinds.map((kind) => ({
      ...outlines(panel, state.placed[p], kind, range, perPixel),
      type: "scatter", mode: "none", fill: "toself", hoverinfo: "skip", name: figure.kinds[kind], legendgroup: figure.kinds[kind], showlegend: p === 0,
      xaxis: p ? "x" + (p + 1) : "x", yaxis: p ? "y" + (p + 1) : "y", visible: hidden.has(kind) ? "legendonly" : true,
      fillcolor: colour("kind-" + figure.kinds[kind]), line: {simplify: false},
    })));
  }

  function draw() {
    const range = plot.layout ? [...plot.layout.xaxis.range] : [0, end];
    const placed = figure.panels.map(placedLanes);
    const width = plot.clientWidth, narrow = width < 640;
    const labels = placed.flatMap((rows) => rows.lanes.map(({lane, first}) => laneLabel(lane, first, narrow)));
    const longest = Math.max(0, ...labels.map((label) => label.length));
    const left = Math.min(20 + longest * (narrow ? 5.8 : 6.8), width * 0.4);
    const legendRows = Math.ceil(usedKinds.length / Math.max(1, Math.floor((width - left - 14) / 125)));
    const legendHeight = 20 * legendRows + 16;
    const blocks = placed.map((rows) => captionHeight + rows.height + axisHeight);
    const height = legendHeight + blocks.reduce((a, b) => a + b, 0) + 18;
    const inner = height - legendHeight - 18;
    state = {placed, innerWidth: width - left - 14, left, tops: []};
    const layout = {
      ...baseLayout(), width, height, margin: {l: left, r: 14, t: legendHeight, b: 18}, dragmode: "zoom", hovermode: false,
      legend: {orientation: "h", x: 0, xanchor: "left", xref: "container", y: 1, yanchor: "top", yref: "container", entrywidth: 70, itemsizing: "constant", itemdoubleclick: false, font: {size: 13}},
      annotations: [], shapes: [],
    };
    let offset = 0;
    figure.panels.forEach((panel, p) => {
      const rows = placed[p], suffix = p ? String(p + 1) : "", last = p === figure.panels.length - 1;
      const top = offset + captionHeight, bottom = top + rows.height;
      offset += blocks[p];
      state.tops.push(legendHeight + top);
      layout["xaxis" + suffix] = {
        ...baseAxis(last ? `time [${report.unit.symbol}]` : ""), range: [...range], autorange: false, anchor: "y" + suffix,
        ticks: "outside", ticklen: 4, tickcolor: colour("rule"), ...(p ? {matches: "x"} : {}),
      };
      layout["yaxis" + suffix] = {
        ...baseAxis(""), range: [rows.height, 0], domain: [1 - bottom / inner, 1 - top / inner], fixedrange: true, showgrid: false,
        tickvals: rows.lanes.map((lane) => lane.y), ticktext: rows.lanes.map(({lane, first}) => tickText(lane, first, narrow)),
        tickfont: {size: narrow ? 11 : 12, color: colour("faint")}, anchor: "x" + suffix,
      };
      layout.annotations.push({
        xref: "paper", x: 0, xanchor: "left", yref: "paper", y: 1 - top / inner, yanchor: "bottom", yshift: 4, showarrow: false,
        xshift: narrow ? -left : 0, text: captionText(panel, Math.floor((width - (narrow ? 14 : left + 120)) / 7.5)), font: {size: 14, color: colour("ink")},
      }, {
        xref: "x" + suffix, x: panel.end, xanchor: "right", yref: "paper", y: 1 - top / inner, yanchor: "bottom", yshift: 4, showarrow: false,
        text: "ends at " + timeText(panel.end), font: {size: 12, color: colour("faint")}, visible: !narrow,
      });
      layout.shapes.push({
        type: "line", xref: "x" + suffix, yref: "y" + suffix, x0: panel.end, x1: panel.end, y0: 0, y1: rows.height,
        line: {color: colour("ink"), width: 1, dash: "dot"},
      });
    });
    Plotly.react(plot, traces(range), layout, {...plotOptions, doubleClick: false, showTips: false});
  }

  /** Which run it is, and its own title as far as there is room. */
  function captionText(panel, length) {
    const room = length - panel.caption.length - 3;
    const title = panel.title && room > 8 ? `  <span style="color:${colour("faint")}">${plain(shortened(panel.title, room))}</span>` : "";
    return `<b>${plain(shortened(panel.caption, length))}</b>${title}`;
  }

  function laneLabel(lane, first, narrow) {
    return first ? `${shortened(lane.process, narrow ? 12 : 20)}  ${shortened(lane.name, narrow ? 12 : 20)}` : shortened(lane.name, narrow ? 12 : 20);
  }

  function tickText(lane, first, narrow) {
    const name = plain(shortened(lane.name, narrow ? 12 : 20));
    return first ? `<span style="color:${colour("ink")}">${plain(shortened(lane.process, narrow ? 12 : 20))}</span>  ${name}` : name;
  }

  /** The span under the pointer, or the nearest within three pixels. */
  function spanAt(event) {
    const box = plot.getBoundingClientRect(), range = plot.layout.xaxis.range;
    const perPixel = (range[1] - range[0]) / state.innerWidth;
    const across = event.clientX - box.left - state.left, down = event.clientY - box.top;
    if (across < 0 || across > state.innerWidth) return null;
    const time = range[0] + across * perPixel;
    for (const [p, panel] of figure.panels.entries()) {
      const row = state.placed[p].lanes.find(({y}) => Math.abs(state.tops[p] + y - down) <= laneHeight / 2);
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

  function showSpan(event) {
    const found = event.buttons ? null : spanAt(event);
    tooltip.hidden = found === null;
    if (found === null) return;
    const {panel, lane, i} = found;
    tooltip.textContent = `${figure.names[panel.name[i]]}\n${figure.kinds[panel.kind[i]]} · ${lane.process}, ${lane.name}\n` +
      `start ${timeText(panel.start[i])} · duration ${timeText(panel.stop[i] - panel.start[i])}`;
    const box = tooltip.getBoundingClientRect();
    tooltip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.width - 8)) + "px";
    tooltip.style.top = (event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  }

  keepDrawn(draw);
  const reset = () => Plotly.relayout(plot, {"xaxis.range": [0, end]});
  plot.on("plotly_relayout", () => {
    const fresh = traces(plot.layout.xaxis.range);
    Plotly.restyle(plot, {x: fresh.map((trace) => trace.x), y: fresh.map((trace) => trace.y)});
  });
  plot.on("plotly_legendclick", (click) => {
    const kind = figure.kinds.indexOf(click.data[click.curveNumber].name);
    if (!hidden.delete(kind)) hidden.add(kind);
    draw();
    return false;
  });
  plot.on("plotly_doubleclick", reset);
  document.getElementById("reset").addEventListener("click", reset);
  selector.addEventListener("change", draw);
  plot.addEventListener("mousemove", showSpan);
  plot.addEventListener("mouseleave", () => { tooltip.hidden = true; });
}
