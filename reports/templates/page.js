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

  const draw = () => {
    for (const { target, text } of specs) {
      const figure = coloured(text);
      if (target.clientWidth < 480) {
        figure.layout.font.size = 12;
        figure.layout.margin.l = 44;
        figure.layout.margin.r = 8;
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
