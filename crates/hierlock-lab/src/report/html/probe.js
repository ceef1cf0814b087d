// Uses the page as a reader would, and sends its findings to the outer document. Only the tests include it.
'use strict';
(async () => {
  const get = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (selector) => all(selector).filter((element) => element.checkVisibility());
  const found = { width: innerWidth };
  const root = document.documentElement;
  const choose = (id, value) => {
    get(id).value = value;
    get(id).dispatchEvent(new Event('input', { bubbles: true }));
  };

  // The page is widest with everything open.
  const open = (is) => { for (const details of all('details')) details.open = is; };
  open(true);
  found.too_wide = [];
  if (root.scrollWidth > innerWidth) {
    for (const element of all('body *')) {
      if (element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll')) {
        found.too_wide.push(`${element.tagName} ${element.getAttribute('class')}`);
      }
    }
    found.too_wide.push(`page ${root.scrollWidth}`);
  }
  found.runs = shown('.run').length;
  found.timelines = shown('.time').length;
  // Every box of a timeline is inside of it, and below the boxes before it.
  found.misplaced = all('.time').flatMap((time) => {
    const outer = time.getBoundingClientRect();
    const width = outer.left + time.scrollWidth;
    let above = outer.top;
    return [...time.querySelectorAll('.b')].map((box) => box.getBoundingClientRect()).filter((box) => {
      const fits = box.top >= above && box.bottom <= outer.bottom && box.left >= outer.left && box.right <= width;
      above = box.bottom;
      return !fits;
    });
  }).length;
  found.graphs = shown('svg.graph').length;
  found.lock_tables = shown('table.locks').length;

  // The contrast of every text with its background, in both themes.
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 128) return colour;
    }
    return [255, 255, 255, 255];
  };
  const lowContrast = new Set();
  const measure = () => {
    const known = new Map();
    for (const element of shown('body *')) {
      const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!hasText || element.closest('script, select, canvas')) continue;
      const style = getComputedStyle(element);
      const svg = element.closest('svg');
      // In a drawing the background is a box or the card: both are checked.
      const backgrounds = svg ? [background(svg), background(svg.closest('.card'))] : [background(element)];
      for (const colour of backgrounds) {
        const ink = svg ? style.fill : style.color;
        const key = `${ink} on ${colour}`;
        if (!known.has(key)) {
          const [a, b] = [luminance(rgba(ink)), luminance(colour)];
          known.set(key, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
        }
        if (known.get(key) < 4.5) lowContrast.add(`${element.tagName}.${element.getAttribute('class')}: ${key} ${known.get(key).toFixed(2)}`);
      }
    }
  };
  measure();
  const before = getComputedStyle(document.body).backgroundColor;
  get('f-theme').click();
  found.theme_changes = getComputedStyle(document.body).backgroundColor !== before;
  measure();
  found.low_contrast = [...lowContrast];

  found.dead_links = all('a[href]').filter((link) => !get(link.getAttribute('href').slice(1))).length;
  found.duplicate_ids = all('[id]').length - new Set(all('[id]').map((element) => element.id)).size;
  found.requests = performance.getEntriesByType('resource').length;

  choose('f-text', '三すくみ RING');
  found.searched = shown('article').map((article) => article.id);
  choose('f-text', 'no such words');
  found.nothing = shown('#nothing').length === 1 && shown('article').length === 0;
  choose('f-text', '');
  choose('f-engine', 'mariadb');
  found.on_mariadb = shown('.run').length;
  choose('f-engine', '');
  choose('f-verdict', 'disagrees');
  found.disagreeing = shown('.run').length;
  choose('f-verdict', '');

  open(false);
  document.querySelector('.matrix a.m').click();
  await new Promise((later) => setTimeout(later, 100));
  found.opened_by_link = all('.run[open]').length === 1 && all('.run')[0].open;

  found.errors = window.pageErrors;
  parent.postMessage(JSON.stringify(found), '*');
})();
