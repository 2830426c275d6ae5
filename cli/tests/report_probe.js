// Runs in a page of `kiln report` behind its own script: uses the page as a reader does, and writes what it finds as JSON.
"use strict";
(function () {
  var found = { errors: window.probeErrors || [], tables: {}, graphs: [], resources: [] };
  var all = function (selector, within) { return Array.prototype.slice.call((within || document).querySelectorAll(selector)); };

  // Every row has a cell for each head.
  all("table").forEach(function (table) {
    var heads = all("thead th", table).length;
    var rows = all("tbody tr", table);
    var wrong = rows.filter(function (r) { return heads > 0 && r.cells.length !== heads; }).length;
    found.tables[table.id || "unnamed"] = { rows: rows.length, wrong: wrong };
  });

  // Boxes of pictures have a size, lie within their picture, and none covers another.
  all("svg").forEach(function (svg) {
    var frame = svg.getBoundingClientRect();
    var boxes = all("g.box", svg).map(function (b) { return (b.querySelector("rect") || b).getBoundingClientRect(); });
    var outside = 0, covered = 0, flat = 0;
    boxes.forEach(function (a, i) {
      if (a.width < 4 || a.height < 4) { flat += 1; }
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) { outside += 1; }
      boxes.slice(i + 1).forEach(function (b) {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1) { covered += 1; }
      });
    });
    var lives = all("rect.life", svg).filter(function (r) { return r.getBoundingClientRect().width > 0; }).length;
    found.graphs.push({ boxes: boxes.length, outside: outside, covered: covered, flat: flat, lives: lives, width: frame.width });
  });

  // A click on a head sorts, a word filters, a click on a row marks its box.
  var layers = document.getElementById("layers") && document.querySelector("table#layers");
  if (layers) {
    var names = function () { return all("tbody tr", layers).map(function (r) { return r.cells[1].textContent; }); };
    var heads = all("thead th", layers);
    var column = heads.map(function (h) { return h.textContent; }).indexOf("layer");
    heads[column].click();
    var down = names();
    heads[column].click();
    var up = names();
    found.sorted = up.slice().reverse().join("\n") === down.join("\n")
      && up.every(function (n, i) { return i === 0 || up[i - 1].localeCompare(n) <= 0; });
    var filter = document.getElementById("filter");
    filter.value = names()[0];
    filter.dispatchEvent(new Event("input"));
    found.filtered = all("tbody tr", layers).filter(function (r) { return !r.hidden; }).length;
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    found.shown = all("tbody tr", layers).filter(function (r) { return !r.hidden; }).length;
    all("tbody tr", layers)[0].click();
    found.marked = all(".box.found").length;
  }
  found.resources = performance.getEntriesByType("resource").map(function (r) { return r.name; });
  found.width = document.documentElement.scrollWidth;
  found.window = window.innerWidth;
  var out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(found);
  document.body.appendChild(out);
})();
