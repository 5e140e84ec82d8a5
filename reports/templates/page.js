"use strict";
(() => {
  const specs = [...document.querySelectorAll("script[data-chart]")].map((node) => ({
    target: document.getElementById(node.dataset.chart),
    text: node.textContent,
  }));

  // Charts name their colours by the page's own variables, so one figure serves every scheme.
  const coloured = (text) => {
    const style = getComputedStyle(document.documentElement);
    return JSON.parse(text.replace(/var\((--[a-z]+)\)/g, (_, name) => style.getPropertyValue(name).trim()));
  };

  // Labels at given values would run into each other on a narrow page.
  const thin = (axis) => {
    if (axis.type !== "log" || !axis.tickvals) return;
    const at = axis.tickvals.map(Math.log10);
    const last = at.length - 1;
    const apart = (at[last] - at[0]) * 0.11;
    let kept = 0;
    const chosen = at.map((place, i) => {
      if (i !== 0 && i !== last && (place - at[kept] < apart || at[last] - place < apart)) return false;
      kept = i;
      return true;
    });
    axis.tickvals = axis.tickvals.filter((_, i) => chosen[i]);
    axis.ticktext = axis.ticktext.filter((_, i) => chosen[i]);
  };

  const draw = () => {
    for (const { target, text } of specs) {
      const figure = coloured(text);
      if (target.clientWidth < 480) {
        figure.layout.font.size = 12;
        figure.layout.margin.l = 44;
        figure.layout.margin.r = 8;
        thin(figure.layout.xaxis);
      }
      Plotly.react(target, figure.data, figure.layout, figure.config);
    }
  };

  if (specs.length) {
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    const paper = (on) => {
      document.documentElement.classList.toggle("paper", on);
      // Charts are drawn before the page takes the paper's width: A4 within its margins.
      for (const { target } of specs) target.style.width = on ? "680px" : "";
      draw();
    };
    addEventListener("beforeprint", () => paper(true));
    addEventListener("afterprint", () => paper(false));
  }

  const copy = async (text, source) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Pages opened from a file may have no clipboard: select the text and ask the old way.
      getSelection().selectAllChildren(source);
      return document.execCommand("copy");
    }
  };

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const source = button.closest(".command").querySelector("code");
      button.textContent = (await copy(source.textContent, source)) ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = label; }, 1600);
    });
  }
})();
