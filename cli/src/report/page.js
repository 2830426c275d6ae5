// Sorts tables by a click on a head, filters layers by words, and marks a layer in the picture. The page is whole without it.
"use strict";
(function () {
  var number = function (cell) { var v = cell.getAttribute("data-v"); return v === null ? null : parseFloat(v); };
  document.querySelectorAll("table.sortable").forEach(function (table) {
    table.querySelectorAll("th").forEach(function (head, column) {
      head.addEventListener("click", function () {
        var down = head.getAttribute("data-down") !== "1";
        head.setAttribute("data-down", down ? "1" : "0");
        var body = table.tBodies[0];
        var rows = Array.prototype.slice.call(body.rows);
        rows.sort(function (a, b) {
          var x = number(a.cells[column]), y = number(b.cells[column]);
          var order = x === null && y === null
            ? a.cells[column].textContent.localeCompare(b.cells[column].textContent)
            : (x === null ? -1e300 : x) - (y === null ? -1e300 : y);
          return down ? -order : order;
        });
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  });
  var filter = document.getElementById("filter");
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("input", function () {
      var word = filter.value.toLowerCase();
      document.querySelectorAll("#layers tbody tr").forEach(function (row) {
        row.hidden = row.textContent.toLowerCase().indexOf(word) < 0;
      });
    });
  }
  document.querySelectorAll("#layers tbody tr").forEach(function (row) {
    row.addEventListener("click", function () {
      document.querySelectorAll(".box.found").forEach(function (b) { b.classList.remove("found"); });
      var box = document.querySelector('.box[data-layer="' + row.getAttribute("data-layer") + '"]');
      if (box) { box.classList.add("found"); box.scrollIntoView({ block: "nearest", inline: "center" }); }
    });
  });
})();
