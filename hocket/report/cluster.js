// Completion times as distributions, where an average job's time goes, and how many transfers share a server.
{
  const {results, parts} = report;
  const logarithmic = document.getElementById("logarithmic");
  const dashes = ["solid", "8px,3px", "2px,3px"];
  const partColours = {queueing: "kind-wait", computing: "kind-forward", gpu_wait: "kind-pull", transferring: "kind-reduce", network_wait: "kind-push"};
  const mostContended = 5;

  function styleOf(k) {
    return {color: colour("series-" + (k % 8 + 1)), dash: dashes[Math.floor(k / 8) % 3]};
  }

  /** One picture with its legend above: `innerHeight` pixels without axis and legend. */
  function drawInto(id, innerHeight, traces, layout) {
    const plot = document.getElementById(id);
    const width = plot.clientWidth;
    const left = layout.left ?? 64;
    const drawBelow = (legendHeight) => {
      const margin = {l: left, r: 18, t: Math.max(26, 10 + legendHeight), b: 50, autoexpand: false};
      Plotly.react(plot, traces, {
        ...baseLayout(), width, height: innerHeight + margin.t + margin.b, margin, hovermode: "closest", hoverdistance: 24, dragmode: false,
        showlegend: traces.length > 1, ...layout,
        legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", bgcolor: "rgba(0,0,0,0)", traceorder: "normal", maxheight: 1000},
      }, plotOptions);
    };
    drawBelow(0);
    // How many lines a legend takes shows only once it is drawn.
    const legend = plot.querySelector(".legend");
    if (legend) drawBelow(Math.ceil(legend.getBBox().height) + 6);
  }

  function drawCompletion() {
    const log = logarithmic.checked;
    const positive = results.flatMap((result) => result.jct.filter((time) => time > 0));
    const lowest = positive.length ? positive.reduce((a, b) => Math.min(a, b)) : 1, highest = positive.reduce((a, b) => Math.max(a, b), lowest);
    const traces = results.map((result, k) => ({
      x: [log ? lowest : 0, ...result.jct], y: [0, ...result.share], type: "scatter", mode: "lines", name: plain(result.name), cliponaxis: false,
      line: {shape: "hv", width: 2, ...styleOf(k)},
      text: ["", ...result.jct.map((time, i) => `<b>${plain(result.name)}</b><br>${result.share[i].toFixed(1)}% of the jobs: at most ${timeText(time)}`)],
      hovertemplate: "%{text}<extra></extra>",
    }));
    const width = document.getElementById("jct").clientWidth - 82;
    const ticks = log && highest > lowest ? ticksWithRoom(logTicks(lowest, highest), lowest, highest, width) : [];
    drawInto("jct", 360, traces, {
      xaxis: {
        ...baseAxis(`completion time [${report.unit.symbol}]`), type: log ? "log" : "linear", fixedrange: true, ticks: "outside", ticklen: 4, tickcolor: colour("rule"),
        range: log ? [Math.log10(lowest / 1.1), Math.log10(highest * 1.1)] : [0, highest * 1.02], ...(ticks.length ? {tickvals: ticks, ticktext: ticks.map(String)} : {}),
      },
      yaxis: {...baseAxis("jobs [%]"), range: [0, 102], fixedrange: true, ticks: "outside", ticklen: 4, tickcolor: colour("rule")},
    });
  }

  function drawParts() {
    const shown = results.filter((result) => result.parts !== null);
    const longest = Math.max(...shown.map((result) => result.name.length));
    const left = Math.min(24 + 7 * longest, document.getElementById("parts").clientWidth * 0.4);
    const length = Math.floor((left - 24) / 7);
    const traces = parts.map((part, p) => ({
      x: shown.map((result) => result.parts[p]), y: shown.map((_, k) => k), type: "bar", orientation: "h", name: report.part_names[part],
      marker: {color: colour(partColours[part])}, width: 0.62,
      text: shown.map((result) => `<b>${plain(result.name)}</b><br>${report.part_names[part]}: ${timeText(result.parts[p])}`), textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
    }));
    drawInto("parts", 34 * shown.length + 10, traces, {
      left, barmode: "stack",
      xaxis: {...baseAxis(`average time of a job [${report.unit.symbol}]`), fixedrange: true, ticks: "outside", ticklen: 4, tickcolor: colour("rule"), rangemode: "tozero"},
      yaxis: {...baseAxis(""), fixedrange: true, showgrid: false, range: [shown.length - 0.5, -0.5], tickvals: shown.map((_, k) => k), ticktext: shown.map((result) => plain(shortened(result.name, length)))},
    });
  }

  function drawContention() {
    const shown = results.map((result, k) => ({result, k})).filter(({result}) => result.contention !== null).slice(0, mostContended);
    const traces = shown.map(({result, k}) => {
      const {begin, bin, mean, most} = result.contention;
      return {
        x: mean.map((_, i) => begin + i * bin), y: mean, type: "scatter", mode: "lines", name: plain(result.name),
        line: {shape: "hv", width: 1.5, ...styleOf(k)},
        text: mean.map((level, i) => `<b>${plain(result.name)}</b><br>from ${timeText(begin + i * bin)}: ${level.toFixed(2)} on average, ${most[i]} at most`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
    drawInto("contention", 220, traces, {
      xaxis: {...baseAxis(`time [${report.unit.symbol}]`), fixedrange: true, ticks: "outside", ticklen: 4, tickcolor: colour("rule")},
      yaxis: {...baseAxis("transfers on a server"), fixedrange: true, rangemode: "tozero", ticks: "outside", ticklen: 4, tickcolor: colour("rule")},
    });
  }

  keepDrawn(drawCompletion);
  if (document.getElementById("parts")) keepDrawn(drawParts);
  if (document.getElementById("contention")) keepDrawn(drawContention);
  logarithmic.addEventListener("change", drawCompletion);
}
