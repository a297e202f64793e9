// Steps one after another, a bar for each worker's, stacked of what it does in them.
{
  const parts = [["overlap", "computing beside transfers", "series-3"], ["alone", "computing alone", "series-1"], ["waiting", "waiting", "kind-wait"]];
  const place = document.getElementById("steps");

  keepDrawn(() => {
    const labels = report.steps.map(({worker}) => plain(shortened(worker, 14)));
    const traces = parts.map(([key, name, shade]) => ({
      type: "bar", name, marker: {color: colour(shade)}, textposition: "none",
      x: [report.steps.flatMap((each) => each[key].map((_, k) => `step ${k + 1}`)), report.steps.flatMap((each, w) => each[key].map(() => labels[w]))],
      y: report.steps.flatMap((each) => each[key]),
      text: report.steps.flatMap((each, w) => each[key].map((value, k) => `<b>${labels[w]}, step ${k + 1}</b><br>${name}: ${timeText(value)}`)),
      hovertemplate: "%{text}<extra></extra>",
    }));
    const many = report.steps.reduce((sum, each) => sum + each.alone.length, 0) > place.clientWidth / 60;  // narrower bars have no room for their names
    Plotly.react(place, traces, {
      ...baseLayout(), width: place.clientWidth, height: 340, margin: {l: 62, r: 12, t: 64, b: many ? 40 : 60}, barmode: "stack", hovermode: "closest", dragmode: false,
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
      xaxis: {...baseAxis(many ? "steps, a bar a worker" : ""), fixedrange: true, showticklabels: !many, showdividers: !many},
      yaxis: {...baseAxis(`time [${report.unit.symbol}]`), fixedrange: true, rangemode: "tozero"},
    }, plotOptions);
  });
}
