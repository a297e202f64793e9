// Spans on lanes, runs above each other, one trace a kind and run: only what a pixel can show is drawn.
if (report.timelines) {
  const figure = report.timelines;
  const plot = document.getElementById("timeline");
  const selector = document.getElementById("lanes");
  const tooltip = document.getElementById("tooltip"), marker = document.getElementById("selected");
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

  const coarse = window.matchMedia("(pointer: coarse)").matches;  // a drag scrolls the page there
  let cursor = null;  // the span that the keyboard is at: its panel, lane and index
  let state = null;  // what was drawn last, for the pointer and for zooming

  function traces(range) {
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
    const longest = Math.max(0, ...labels.map((label) => label.length));
    const left = Math.min(20 + longest * (narrow ? 5.8 : 6.8), width * 0.4);
    const above = 22;  // the button that saves the picture is there
    const blocks = placed.map((rows) => captionHeight + rows.height + axisHeight);
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
    placeMarker();
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

  function spanText({panel, lane, i}) {
    return `${figure.names[panel.name[i]]}\n${figure.kinds[panel.kind[i]]} · ${lane.process}, ${lane.name}\n` +
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
    return figure.panels.flatMap((panel, p) => state.placed[p].lanes.map((row) => ({
      panel, p, row, spans: panel.spansOf[row.index].filter((_, kind) => !hidden.has(kind)).flat().sort((a, b) => panel.start[a] - panel.start[b]),
    }))).filter(({spans}) => spans.length);
  }

  /** Outline the span that the keyboard is at, as far as it is in view. */
  function placeMarker() {
    marker.hidden = true;
    if (!cursor) return;
    const {panel, p, row, i} = cursor, range = plot.layout.xaxis.range, perPixel = (range[1] - range[0]) / state.innerWidth;
    const from = Math.max(0, (panel.start[i] - range[0]) / perPixel), to = Math.min(state.innerWidth, (panel.stop[i] - range[0]) / perPixel);
    if (to < 0 || from > state.innerWidth) return;
    marker.hidden = false;
    marker.style.left = plot.offsetLeft + state.left + from - 2 + "px";
    marker.style.width = Math.max(5, to - from + 4) + "px";
    marker.style.top = plot.offsetTop + state.tops[p] + row.y - bar / 2 - 2 + "px";
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
      label.append(box, swatch, figure.kinds[kind]);
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(kind);
        else hidden.add(kind);
        draw();
      });
      return label;
    }));
  }

  offerKinds();
  keepDrawn(draw);
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
