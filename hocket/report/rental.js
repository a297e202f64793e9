// Cost over time: a curve for each offer over its numbers of nodes, the front, the answer and the limits.
{
  const {offers, front, chosen, deadline, budget, currency} = report.rental;
  const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon2", "star"];

  function colourOf(k) {
    return colour("series-" + (k % 8 + 1));
  }

  function hoursText(hours) {
    if (hours < 1) return `${Number((60 * hours).toPrecision(3))} min`;
    return hours < 100 ? `${Number(hours.toPrecision(3))} hours` : `${Number((hours / 24).toPrecision(3))} days`;
  }

  function amountText(cost) {
    const shown = cost >= 1000 ? Math.round(cost).toLocaleString("en") : String(Number(cost.toPrecision(3)));
    return currency ? `${shown} ${plain(currency)}` : shown;
  }

  function offerTrace(offer) {
    const k = offer.place;
    return {
      x: offer.hours, y: offer.cost, type: "scatter", mode: "lines+markers", name: plain(offer.name), cliponaxis: false,
      line: {color: colourOf(k), width: 1}, marker: {color: colourOf(k), size: 6, symbol: symbols[Math.floor(k / 8) % 8]},
      text: offer.hours.map((hours, i) => `<b>${plain(offer.name)}: ${offer.gpus[i]} ${plain(offer.device)} in ${offer.nodes[i]} node${offer.nodes[i] === 1 ? "" : "s"}</b>` +
        `<br>${hoursText(hours)}${offer.low[i] === null ? "" : ` (${hoursText(offer.low[i])} to ${hoursText(offer.high[i])})`}, ${amountText(offer.cost[i])}` +
        `<br>efficiency ${(100 * offer.efficiency[i]).toFixed(0)}%, bound by ${offer.bottleneck[i] === "network" ? "the network" : "computing"}`),
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  function frontTraces() {
    const line = {x: front.hours, y: front.cost, type: "scatter", mode: "lines", name: "front", line: {color: colour("ink"), width: 3, shape: "vh"}, opacity: 0.35, hoverinfo: "skip"};
    const rings = {x: chosen.map((each) => each.hours), y: chosen.map((each) => each.cost), type: "scatter", mode: "markers", showlegend: false, hoverinfo: "skip", cliponaxis: false,
      marker: {size: 17, symbol: "circle-open", color: colour("ink"), line: {width: 2}}};
    return [line, rings];
  }

  function limitShapes() {
    const line = {color: colour("faint"), width: 1.5, dash: "6px,4px"};
    return [
      ...(deadline === null ? [] : [{type: "line", x0: deadline, x1: deadline, yref: "paper", y0: 0, y1: 1, line}]),
      ...(budget === null ? [] : [{type: "line", y0: budget, y1: budget, xref: "paper", x0: 0, x1: 1, line}]),
    ];
  }

  /** The ends of an axis, with room around values; `below`, `above`: the shares of it that are free at either end. */
  function extent(values, limit, below, above) {
    const all = limit === null ? values : [...values, limit], least = Math.min(...all), most = Math.max(...all);
    const free = (share) => Math.max(1.25, (most / least) ** (share / (1 - below - above)));
    return [least / free(below), most * free(above)];
  }

  /** Round numbers at even steps, for an axis too short for two of 1, 2 and 5 times a power of ten. */
  function evenTicks(lowest, highest) {
    const rough = (highest - lowest) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const first = Math.ceil(lowest / step), count = Math.floor(highest / step) - first + 1;
    return Array.from({length: count}, (_, k) => Number(((first + k) * step).toPrecision(6)));
  }

  /** Ticks of a logarithmic axis, as many as have room, with a text each. */
  function axis(title, range, room, text) {
    const found = logTicks(...range);
    const ticks = found.length < 2 ? evenTicks(...range) : ticksWithRoom(found, ...range, room);
    return {
      ...baseAxis(title), type: "log", range: range.map(Math.log10), fixedrange: true, showline: true, ticks: "outside", ticklen: 4,
      tickcolor: colour("rule"), tickvals: ticks, ticktext: ticks.map(text),
    };
  }

  function drawFront() {
    const plot = document.getElementById("front"), width = plot.clientWidth, innerHeight = 420;
    const xs = extent(offers.flatMap((offer) => offer.hours), deadline, 0, 0);
    // The name of the cheapest stands below it, clear of the axis, that of the fastest above it, clear of the legend.
    const ys = extent(offers.flatMap((offer) => offer.cost), budget, 80 / innerHeight, 60 / innerHeight);
    const traces = [...frontTraces(), ...offers.map(offerTrace)];
    const drawBelow = (legendHeight) => {
      const margin = {l: 72, r: 18, t: Math.max(26, 14 + legendHeight), b: 50, autoexpand: false};
      const innerWidth = width - margin.l - margin.r;
      Plotly.react(plot, traces, {
        ...baseLayout(), width, height: innerHeight + margin.t + margin.b, margin, hovermode: "closest", hoverdistance: 24, dragmode: false,
        xaxis: axis("hours", xs, innerWidth, String),
        yaxis: axis(currency ? `cost (${plain(currency)})` : "cost", ys, 3 * innerHeight, (value) => value.toLocaleString("en")),
        shapes: limitShapes(), showlegend: true,
        legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
        annotations: chosen.map((each, k) => ({
          x: Math.log10(each.hours), y: Math.log10(each.cost), text: plain(each.name), showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: colour("ink"),
          ax: k === 0 && chosen.length > 1 ? -30 : 30, ay: k === 0 && chosen.length > 1 ? 46 : -46, standoff: 9, bgcolor: colour("paper"), borderpad: 2, opacity: 0.95,
          font: {size: 13, color: colour("ink")},
        })),
      }, plotOptions);
    };
    drawBelow(0);
    drawBelow(Math.ceil(plot.querySelector(".legend").getBBox().height));
  }

  keepDrawn(drawFront);
}
