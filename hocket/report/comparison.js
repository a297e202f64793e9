// Parts of a step as pairs of bars.
{
  const place = document.getElementById("figures");

  keepDrawn(() => {
    const names = report.figures.map(({name}) => plain(name));
    const traces = [["predicted", "series-1"], ["measured", "series-2"]].map(([side, shade]) => ({
      type: "bar", name: side, x: names, y: report.figures.map((figure) => figure[side]), marker: {color: colour(shade)}, textposition: "none",
      text: report.figures.map((figure) => `<b>${plain(figure.name)}</b><br>${side}: ${figure[side] === null ? "none" : timeText(figure[side])}`),
      hovertemplate: "%{text}<extra></extra>",
    }));
    const narrow = place.clientWidth < 40 + 70 * names.length;
    Plotly.react(place, traces, {
      ...baseLayout(), width: place.clientWidth, height: narrow ? 340 : 300, margin: {l: 62, r: 12, t: 40, b: narrow ? 84 : 30}, barmode: "group", hovermode: "closest", dragmode: false,
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", maxheight: 1000},
      xaxis: {...baseAxis(""), fixedrange: true, tickangle: narrow ? -90 : 0, showgrid: false},
      yaxis: {...baseAxis(`time of a step [${report.unit.symbol}]`), fixedrange: true, rangemode: "tozero"},
    }, plotOptions);
  });
}
