// Predicted over measured throughput, a series for each step.
{
  const plot = document.getElementById("accuracy");
  const coarse = document.getElementById("coarse");
  const steps = [...new Set(report.rows.map((row) => row.step))];

  function trace(rows, key, name, symbol, series) {
    const known = rows.filter((row) => row[key] !== null);
    return {
      x: known.map((row) => row.measured), y: known.map((row) => row[key]), name: plain(name), type: "scatter", mode: "markers",
      marker: {size: 9, symbol, color: colour(series), opacity: 0.8},
      text: known.map((row) => `<b>${plain(row.name)}</b><br>measured ${row.measured.toPrecision(4)}/s` +
        `<br>predicted ${row[key].toPrecision(4)}/s (${(100 * (row[key] / row.measured - 1)).toFixed(1)}%)`),
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  function line(ends, factor, dash) {
    return {
      x: ends, y: ends.map((rate) => rate * factor), type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
      line: {color: colour("contour"), width: 1, dash},
    };
  }

  function draw() {
    const shown = coarse.checked ? ["measured", "predicted", "lin", "cynthia"] : ["measured", "predicted"];
    const rates = report.rows.flatMap((row) => shown.map((key) => row[key])).filter((rate) => rate !== null);
    const ends = [Math.min(...rates) * 0.85, Math.max(...rates) * 1.15];
    const traces = [line(ends, 1, "solid"), line(ends, 0.9, "dot"), line(ends, 1.1, "dot")];
    steps.forEach((step, i) => {
      const rows = report.rows.filter((row) => row.step === step), series = "series-" + (i % 8 + 1);
      traces.push(trace(rows, "predicted", step, "circle", series));
      if (coarse.checked) {
        traces.push(trace(rows, "lin", step + ", lin", "x-thin-open", series));
        traces.push(trace(rows, "cynthia", step + ", cynthia", "triangle-up-open", series));
      }
    });
    const range = ends.map(Math.log10), ticks = logTicks(...ends), across = ticksWithRoom(ticks, ...ends, plot.clientWidth - 90);
    const named = (tickvals) => ({tickvals, ticktext: tickvals.map(String)});
    const layoutBelow = (legendHeight) => ({
      ...baseLayout(), width: plot.clientWidth, height: 480 + 28 + legendHeight, margin: {l: 70, r: 20, t: 28 + legendHeight, b: 56, autoexpand: false}, hovermode: "closest", dragmode: false,
      legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
      xaxis: {...baseAxis("measured, examples/s"), type: "log", range, fixedrange: true, tickangle: 0, ...named(across)},
      yaxis: {...baseAxis("predicted, examples/s"), type: "log", range, fixedrange: true, ...named(ticks)},
    });
    Plotly.react(plot, traces, layoutBelow(0), plotOptions);
    // How many lines a legend takes shows only once it is drawn.
    Plotly.react(plot, traces, layoutBelow(Math.ceil(plot.querySelector(".legend")?.getBBox().height ?? 0)), plotOptions);
  }

  coarse.addEventListener("change", draw);
  keepDrawn(draw);
}
