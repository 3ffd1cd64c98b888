"use strict";
(() => {
  const items = JSON.parse(document.getElementById("charts").textContent);
  const names = ["ink", "muted", "grid", "kept", "filtered", "duplicate", "all", "limit"];
  const drawn = new Set();

  /* Charts carry placeholders for colours; the page's theme decides what they are. */
  const inTheme = (item) => {
    const style = getComputedStyle(document.documentElement);
    const text = names.reduce(
      (json, name, number) => json.replaceAll(`"#0000f${number + 1}"`, JSON.stringify(style.getPropertyValue(`--${name}`).trim())),
      JSON.stringify(item),
    );
    return JSON.parse(text);
  };
  const draw = (target) => {
    const name = target.dataset.chart;
    if (!items[name]) return;
    drawn.add(target);
    target.replaceChildren();
    Bokeh.embed.embed_item(inTheme(items[name]), target);
  };
  const show = (number) => {
    for (const article of document.querySelectorAll(".panels article")) {
      const mine = article.id === `rule-${number}`;
      article.classList.toggle("shown", mine);
      const chart = article.querySelector(".chart");
      if (mine && !drawn.has(chart)) draw(chart);
    }
    for (const tab of document.querySelectorAll(".picker button")) {
      const mine = tab.dataset.rule === String(number);
      tab.setAttribute("aria-selected", String(mine));
      tab.tabIndex = mine ? 0 : -1;
    }
    const select = document.getElementById("rule-select");
    if (select) select.value = String(number);
  };
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const tabs = [...document.querySelectorAll(".picker button")];
    const next = tabs[tabs.indexOf(event.target) + step];
    if (!step || !next) return;
    event.preventDefault();
    next.focus();
    show(next.dataset.rule);
  };
  const start = () => {
    document.documentElement.classList.add("ready");
    for (const target of document.querySelectorAll(".chart")) {
      if (!target.closest(".panels")) draw(target);
    }
    const articles = [...document.querySelectorAll(".panels article")];
    if (articles.length) {
      const most = articles.reduce((best, one) => (Number(one.dataset.dropped) > Number(best.dataset.dropped) ? one : best));
      show(most.id.replace("rule-", ""));
      const picker = document.querySelector(".picker");
      picker.addEventListener("click", (event) => {
        const tab = event.target.closest("button");
        if (tab) show(tab.dataset.rule);
      });
      picker.addEventListener("keydown", move);
      document.getElementById("rule-select").addEventListener("change", (event) => show(event.target.value));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn].forEach(draw));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
