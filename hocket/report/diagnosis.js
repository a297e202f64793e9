// A bar for each rank, its step by what time is spent on; and computing's share over numbers of ranks.
{
  const {ranks, parts, scaling} = report.diagnosis;

  /** Parts of one kind have its colour, later ones paler. */
  function shadeOf(part) {
    const same = parts.filter((other) => other.kind === part.kind), k = same.indexOf(part);
    const alpha = Math.round(255 * (1 - 0.7 * k / same.length)).toString(16).padStart(2, "0");  // the legend has no opacity of its own
    return {color: colour("kind-" + part.kind) + alpha};
  }

  function barTraces() {
    return parts.map((part) => ({
      y: ranks.map(plain), x: part.times, type: "bar", orientation: "h", name: plain(shortened(part.name, 44)),
      marker: shadeOf(part),
      text: part.times.map((time, i) => `<b>${plain(ranks[i])}</b><br>${plain(part.name)}: ${timeText(time)}`),
      textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }));
  }

  function drawTimes() {
    const plot = document.getElementById("times"), width = plot.clientWidth;
    const widest = Math.max(...ranks.map((name) => name.length));
    const left = Math.min(width / 3, 16 + 7.2 * widest), innerHeight = 46 + 30 * ranks.length;
    const names = ranks.map((name) => plain(shortened(name, Math.floor((left - 16) / 7.2))));
    const drawBelow = (legendHeight) => {
      const margin = {l: left, r: 18, t: 16 + legendHeight, b: 46, autoexpand: false};
      Plotly.react(plot, barTraces(), {
        ...baseLayout(), width, height: innerHeight + margin.t + margin.b, margin, barmode: "stack", dragmode: false, hovermode: "closest", bargap: 0.25,
        xaxis: {...baseAxis(`time (${report.unit.symbol})`), nticks: Math.max(3, Math.floor(width / 110)), rangemode: "tozero"},
        yaxis: {...baseAxis(""), autorange: "reversed", type: "category", tickvals: ranks.map(plain), ticktext: names, showgrid: false},
        showlegend: true,
        legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", traceorder: "normal", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
      }, plotOptions);
    };
    drawBelow(0);
    drawBelow(Math.ceil(plot.querySelector(".legend").getBBox().height));
  }

  function drawScaling() {
    const plot = document.getElementById("scaling"), width = plot.clientWidth;

    const lowest = scaling.ranks[0], highest = scaling.ranks.at(-1), margin = {l: 56, r: 22, t: 18, b: 50, autoexpand: false};
    const ticks = ticksWithRoom(scaling.ranks, lowest, Math.max(highest, lowest + 1), width - margin.l - margin.r);
    Plotly.react(plot, [{
      x: scaling.ranks, y: scaling.computing, type: "scatter", mode: "lines+markers", cliponaxis: false,
      line: {color: colour("series-1"), width: 2.5}, marker: {color: colour("series-1"), size: 7},
      text: scaling.ranks.map((rank, i) => `<b>${rank} ranks</b><br>computing ${scaling.computing[i].toFixed(0)}% of ${timeText(scaling.step[i])}`),
      hovertemplate: "%{text}<extra></extra>",
    }], {
      ...baseLayout(), width, height: 320, margin, dragmode: false, hovermode: "closest", showlegend: false,
      xaxis: {...baseAxis("ranks"), type: "log", tickvals: ticks, ticktext: ticks.map(String)},
      yaxis: {...baseAxis("computing, % of a step"), range: [0, 104]},
      shapes: [{type: "line", xref: "paper", x0: 0, x1: 1, y0: 50, y1: 50, line: {color: colour("contour"), width: 1.5, dash: "dash"}}],
    }, plotOptions);
  }

  keepDrawn(drawTimes);
  if (document.getElementById("scaling")) keepDrawn(drawScaling);
}
