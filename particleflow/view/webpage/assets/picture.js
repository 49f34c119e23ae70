// The stage as a picture to keep: with title, time and legend, at twice the pixels of the screen.

const PICTURE_FINER = 2;
const MOST_PIXELS = 32e6; // of a picture: some browsers give no larger canvas
const PICTURE_HEAD = 74; // CSS pixels above the stage
const PICTURE_MARGIN = 18;

// A text cut to a width, with an ellipsis if it was longer.
function cutText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length && context.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
}

// A canvas with the stage of this moment below its title, time and legend.
function pictureOf(app) {
  const { width, height } = app;
  const room = Math.sqrt(MOST_PIXELS / (width * (height + PICTURE_HEAD))) / app.ratio;
  app.resize(Math.min(PICTURE_FINER, room));
  const picture = document.createElement("canvas");
  fitCanvas(picture, width, height + PICTURE_HEAD, app.ratio);
  const context = picture.getContext("2d");
  context.scale(app.ratio, app.ratio);
  context.fillStyle = cssColor(app.colors.background);
  context.fillRect(0, 0, width, height + PICTURE_HEAD);
  app.draw(); // the picture of the card is only there in the task that drew it
  for (const id of ["under", "points", "over"]) context.drawImage(byId(id), 0, PICTURE_HEAD, width, height);
  drawHead(context, app);
  app.resize();
  app.draw();
  return picture;
}

// Title at the left and time at the right, and below them what the run is, then the entries of the legend.
function drawHead(context, app) {
  const { width, colors } = app;
  const right = width - PICTURE_MARGIN;
  const time = byId("readout").textContent;
  drawTexts(context, [[time, right, 26]], colors.ink, "right", "alphabetic", 15);
  const free = right - PICTURE_MARGIN - context.measureText(time).width - 20;
  context.font = font(17, 600);
  context.textAlign = "left";
  context.fillText(cutText(context, byId("title").textContent, free), PICTURE_MARGIN, 26);
  context.font = font(12);
  const facts = cutText(context, byId("subtitle").textContent, right - PICTURE_MARGIN);
  drawTexts(context, [[facts, PICTURE_MARGIN, 45]], colors.muted, "left", "alphabetic", 12);
  drawLegendEntries(context, app, PICTURE_MARGIN, 65, right);
}

// The coloured entries of the legend in a row, as many as there is room for.
function drawLegendEntries(context, app, left, bottom, right) {
  context.font = font(12);
  context.textAlign = "left";
  for (const { code, name } of firstEntries(app, legendEntries(app), LEGEND_ITEMS)) {
    const end = left + 15 + context.measureText(name).width;
    if (end > right) return;
    context.fillStyle = cssColor(app.only < 0 || app.only === code ? app.colors.category(code) : app.colors.line);
    context.beginPath();
    context.arc(left + 5, bottom - 4, 5, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = cssColor(app.colors.ink);
    context.fillText(name, left + 15, bottom);
    left = end + 16;
  }
}
