// Throughput, the busiest resource and cost over the number of workers, a curve for each number of servers.
{
  const {curves, top} = report.prediction;
  const alone = curves.length === 1;
  const logarithmic = document.getElementById("logarithmic");
  const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon2", "star-triangle-up"];
  const workers = [...new Set(curves.flatMap((curve) => curve.workers))].sort((a, b) => a - b);
  const resources = [...new Set(curves.flatMap((curve) => curve.bottleneck))];
  const maxMarkers = 40;

  function colourOf(c) {
    return colour("series-" + (c % 8 + 1));
  }

  /** A model's own colour beside a single curve; among several the curve's. */
  function modelColour(c, place) {
    return alone ? colour("series-" + place) : colourOf(c);
  }

  function digits(value) {
    return value >= 1e4 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
  }

  /** A tick's number, in thousands or millions where all its digits would meet the axis' title. */
  function tickText(value) {
    if (value < 1e4) return digits(value);
    return value < 1e6 ? `${digits(value / 1e3)}k` : `${digits(value / 1e6)}M`;
  }

  function numberOf(count, noun) {
    return `${count} ${noun}${count === 1 ? "" : "s"}`;
  }

  /** A legend entry that stands for one kind of line in all curves. */
  function legendOnly(name, style) {
    return {x: [null], y: [null], type: "scatter", name, legendgroup: name, hoverinfo: "skip", ...style};
  }

  /** Lines of one kind beside each curve, under one legend entry. */
  function besideTraces(name, key, line, hover) {
    const drawn = curves.filter((curve) => curve[key] !== null);
    if (drawn.length === 0) return [];
    const entry = legendOnly(name, {mode: "lines", line: {...line, color: line.color ?? (alone ? modelColour(0, line.place) : colour("faint"))}});
    return [entry, ...curves.flatMap((curve, c) => curve[key] === null ? [] : [{
      x: curve.workers, y: curve[key], type: "scatter", mode: "lines", legendgroup: name, showlegend: false,
      line: {...line, color: line.color ?? modelColour(c, line.place)},
      text: curve.workers.map((w, i) => `${hover}${alone ? "" : ", " + plain(curve.name)}<br>${numberOf(w, "worker")}: ${digits(curve[key][i])} examples/s`),
      hovertemplate: "%{text}<extra></extra>",
    }])];
  }

  function bandTraces() {
    return curves.flatMap((curve, c) => curve.low === null ? [] : [{
      x: [...curve.workers, ...[...curve.workers].reverse()],
      y: [...curve.high, ...[...curve.low].reverse().map((low) => Math.max(low, logarithmic.checked ? top * 1e-9 : 0))],
      type: "scatter", mode: "lines", line: {width: 0}, fill: "toself", fillcolor: colourOf(c) + "33",
      legendgroup: curve.name, showlegend: false, hoverinfo: "skip",
    }]);
  }

  function curveTraces() {
    return curves.map((curve, c) => ({
      x: curve.workers, y: curve.throughput, type: "scatter", name: alone ? "Hocket" : curve.name, legendgroup: curve.name,
      mode: curve.workers.length > maxMarkers ? "lines" : "lines+markers", legendrank: 1, cliponaxis: false,
      line: {color: colourOf(c), width: 2.5},
      marker: {color: colourOf(c), size: 7, symbol: symbols[Math.floor(c / 8) % 8]},
      text: curve.workers.map((w, i) => `<b>${numberOf(w, "worker")}, ${plain(curve.name)}</b><br>${digits(curve.throughput[i])} examples/s` +
        (curve.low === null ? "" : ` (${digits(curve.low[i])} to ${digits(curve.high[i])})`) +
        `<br>step ${timeText(curve.step_s[i] * report.unit.per_second)}<br>${plain(curve.bottleneck[i])}: busy ${curve.busy[i].toFixed(1)}%`),
      hovertemplate: "%{text}<extra></extra>",
    }));
  }

  function measuredTraces() {
    const drawn = curves.map((curve, c) => ({curve, c})).filter(({curve}) => curve.measured.workers.length > 0);
    const marker = {size: 10, symbol: "x-thin", line: {width: 2.5}};
    return drawn.map(({curve, c}, k) => ({
      x: curve.measured.workers, y: curve.measured.throughput, type: "scatter", mode: "markers", cliponaxis: false,
      name: "measured", legendgroup: "measured", showlegend: k === 0,
      marker: {...marker, color: colour("ink"), line: {width: 2.5, color: alone ? colour("ink") : colourOf(c)}},
      text: curve.measured.workers.map((w, i) => `measured, ${plain(curve.name)}<br>${numberOf(w, "worker")}: ${digits(curve.measured.throughput[i])} examples/s`),
      hovertemplate: "%{text}<extra></extra>",
    }));
  }

  /** A ring around one point of each curve that has it, without an entry in the legend. */
  function ringTraces(place, key) {
    return curves.flatMap((curve, c) => curve[place] === null ? [] : [{
      x: [curve.workers[curve[place]]], y: [curve[key][curve[place]]], type: "scatter", mode: "markers",
      legendgroup: curve.name, showlegend: false, hoverinfo: "skip", cliponaxis: false,
      marker: {size: 17, symbol: "circle-open", color: colourOf(c), line: {width: 2}},
    }]);
  }

  /** Pixels that lines and points of these traces cover, closely enough to keep labels off them. */
  function coveredBy(traces, pixels) {
    return traces.filter((trace) => trace.x[0] !== null && trace.fill === undefined).flatMap((trace) => {
      const points = trace.x.map((x, i) => [pixels.x(x), pixels.y(trace.y[i])]);
      if (trace.mode === "markers") return points.flatMap((point) => Array(8).fill(point));
      return points.slice(1).flatMap(([x, y], i) => {
        const [fromX, fromY] = points[i], parts = Math.ceil(Math.hypot(x - fromX, y - fromY) / 6);
        return Array.from({length: parts}, (_, k) => [fromX + (x - fromX) * k / parts, fromY + (y - fromY) * k / parts]);
      });
    });
  }

  /** What the ringed points are, near them where that covers least; `ring` says which points and what. */
  function ringLabels(ring, traces, {pixels, width, height, log}) {
    const covered = coveredBy(traces, pixels);
    return curves.flatMap((curve, c) => {
      if (curve[ring.place] === null || ring.text === undefined) return [];
      const x = curve.workers[curve[ring.place]], y = curve[ring.key][curve[ring.place]];
      const count = numberOf(x, "worker"), text = width < 450 ? count : ring.text(count), half = 3.6 * text.length + 6;
      const across = pixels.x(x), down = pixels.y(y);
      let best = null;
      for (const ax of [-half - 24, -half / 2, 0, half / 2, half + 24]) {
        for (const ay of [-120, -90, -64, -40, 40, 64, 90, 120, 150]) {
          const [middle, level] = [across + ax, down + ay];
          if (middle - half < 0 || middle + half > width || level < 10 || level > height - 10) continue;
          const hidden = covered.filter(([px, py]) => Math.abs(px - middle) < half + 3 && Math.abs(py - level) < 13).length;
          const length = Math.hypot(ax, ay);
          const crossed = covered.filter(([px, py]) => {
            const [right, below] = [px - across, py - down], along = (right * ax + below * ay) / length;
            return along > 14 && along < length && Math.abs(right * ay - below * ax) / length < 6;
          }).length;
          const penalty = 10 * hidden + 3 * crossed + length / 10;
          if (best === null || penalty < best.penalty) best = {ax, ay, middle, level, penalty};
        }
      }
      if (best === null) return [];
      // The next label keeps off this one and its line.
      for (let part = 0.2; part < 1; part += 0.1) covered.push(...Array(4).fill([across + part * best.ax, down + part * best.ay]));
      for (let px = -half; px <= half; px += 6) covered.push(...Array(4).fill([best.middle + px, best.level]));
      return [{
        x: log ? Math.log10(x) : x, y: log ? Math.log10(y) : y, text, ax: best.ax, ay: best.ay,
        arrowhead: 0, arrowwidth: 1, arrowcolor: colourOf(c), standoff: 9,
        bgcolor: colour("paper"), borderpad: 2, opacity: 0.95, font: {size: 13, color: alone ? colour("ink") : colourOf(c)},
      }];
    });
  }

  /** The numbers of workers that were asked for, as many as there is room for. */
  function workerTicks(toPixels) {
    const kept = [];
    for (const w of workers) {
      if (kept.length === 0 || toPixels(w) - toPixels(kept.at(-1)) >= 14 + 8 * String(w).length) kept.push(w);
    }
    return kept;
  }

  /** Both axes of a picture of the given inner size, and how its values become pixels. */
  function axes(title, range, width, height, log) {
    const most = workers.at(-1), scale = log ? Math.log10 : Number;
    const across = log ? [Math.log10(workers[0] / 1.15), Math.log10(most * 1.15)] : [0, most * 1.04];
    const up = range.map(scale);
    const pixels = {
      x: (w) => (scale(w) - across[0]) / (across[1] - across[0]) * width,
      y: (value) => (up[1] - scale(value)) / (up[1] - up[0]) * height,
    };
    const common = {type: log ? "log" : "linear", fixedrange: true, ticks: "outside", ticklen: 4, tickcolor: colour("rule"), showline: true};
    return {
      pixels,
      xaxis: {...baseAxis("workers"), ...common, range: across, tickvals: workerTicks(pixels.x), showgrid: false},
      yaxis: {...baseAxis(title), ...common, range: up, nticks: Math.max(3, Math.round(height / 55)), exponentformat: "none", ...(range[1] >= 1e4 ? {tickformat: "~s"} : {}), ...(log ? {tickvals: logTicks(...range), ticktext: logTicks(...range).map(tickText)} : {})},
    };
  }

  /** One picture: `traces` over workers, the points that `ring` names, a legend above. */
  function drawInto(id, title, innerHeight, range, traces, ring, log = false) {
    const plot = document.getElementById(id);
    const legends = traces.filter((trace) => trace.showlegend !== false).length > 1;
    const width = plot.clientWidth;
    const drawBelow = (legendHeight) => {
      const margin = {l: 64, r: 18, t: Math.max(26, 14 + legendHeight), b: 50, autoexpand: false};
      const innerWidth = width - margin.l - margin.r;
      const {pixels, xaxis, yaxis} = axes(title, range, innerWidth, innerHeight, log);
      Plotly.react(plot, [...traces, ...ringTraces(ring.place, ring.key)], {
        ...baseLayout(), width, height: innerHeight + margin.t + margin.b, margin, hovermode: "closest", hoverdistance: 24, dragmode: false,
        xaxis, yaxis, showlegend: legends,
        legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
        annotations: ringLabels(ring, traces, {pixels, width: innerWidth, height: innerHeight, log}),
      }, plotOptions);
    };
    drawBelow(0);
    // How many lines a legend takes shows only once it is drawn.
    if (legends) drawBelow(Math.ceil(plot.querySelector(".legend").getBBox().height));
  }

  function drawThroughput() {
    const log = logarithmic.checked;
    const lowest = Math.min(...curves.flatMap((curve) => [...curve.throughput, ...(curve.lin ?? []), ...(curve.cynthia ?? []), ...curve.measured.throughput]).filter((value) => value > 0));
    const range = log ? [lowest / 1.3, top * 1.3] : [0, (top || 1) * 1.1];
    drawInto("throughput", "throughput (examples/s)", 400, range, [
      ...bandTraces(),
      ...besideTraces("ideal", "ideal", {width: 1, color: colour("contour")}, "ideal"),
      ...besideTraces("lin", "lin", {width: 1.5, dash: "6px,4px", place: 2}, "lin"),
      ...besideTraces("cynthia", "cynthia", {width: 1.5, dash: "2px,3px", place: 3}, "cynthia"),
      ...curveTraces(),
      ...measuredTraces(),
    ], {place: "saturation", key: "throughput", text: (count) => `saturates at ${count}`}, log);
  }

  function drawBusy() {
    const byResource = resources.map((resource, k) => legendOnly(plain(resource), {mode: "markers", marker: {size: 8, symbol: symbols[k % 8], color: colour("faint")}}));
    const traces = curves.map((curve, c) => ({
      x: curve.workers, y: curve.busy, type: "scatter", mode: "lines+markers", name: plain(curve.name), showlegend: !alone, cliponaxis: false,
      line: {color: colourOf(c), width: 1.5},
      marker: {size: 8, color: colourOf(c), symbol: curve.bottleneck.map((resource) => symbols[resources.indexOf(resource) % 8])},
      text: curve.workers.map((w, i) => `<b>${numberOf(w, "worker")}, ${plain(curve.name)}</b><br>${plain(curve.bottleneck[i])}: busy ${curve.busy[i].toFixed(1)}%`),
      hovertemplate: "%{text}<extra></extra>",
    }));
    drawInto("busy", "in use (%)", 220, [0, 108], [...byResource, ...traces], {place: "saturation", key: "busy"});
  }

  function drawCost() {
    const priced = curves.filter((curve) => curve.cost !== null);
    const highest = Math.max(...priced.flatMap((curve) => curve.cost));
    const traces = curves.flatMap((curve, c) => curve.cost === null ? [] : [{
      x: curve.workers, y: curve.cost, type: "scatter", mode: "lines+markers", name: plain(curve.name), legendgroup: curve.name, showlegend: !alone, cliponaxis: false,
      line: {color: colourOf(c), width: 1.5}, marker: {size: 7, color: colourOf(c)},
      text: curve.workers.map((w, i) => `<b>${numberOf(w, "worker")}, ${plain(curve.name)}</b><br>${digits(curve.cost[i])} per million examples`),
      hovertemplate: "%{text}<extra></extra>",
    }]);
    drawInto("cost", "cost (per million examples)", 220, [0, (highest || 1) * 1.12], traces, {place: "cheapest", key: "cost", text: (count) => `cheapest: ${count}`});
  }

  keepDrawn(drawThroughput);
  keepDrawn(drawBusy);
  if (document.getElementById("cost")) keepDrawn(drawCost);
  logarithmic.addEventListener("change", drawThroughput);
}
