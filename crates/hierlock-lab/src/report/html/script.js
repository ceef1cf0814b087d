// Filter, theme and open-all. The page is complete without it.
'use strict';
(() => {
  const get = (id) => document.getElementById(id);
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const root = document.documentElement;

  // A browser may keep nothing for a file; then the choice lasts as long as the page.
  const keep = (value) => { try { localStorage.setItem('hierlock-theme', value); } catch { /* as said */ } };
  const kept = () => { try { return localStorage.getItem('hierlock-theme'); } catch { return null; } };
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const theme = (name) => { root.dataset.theme = name; get('f-theme').setAttribute('aria-pressed', name === 'dark'); };
  if (kept() === 'dark' || kept() === 'light') theme(kept());
  get('f-theme').addEventListener('click', () => { theme(dark() ? 'light' : 'dark'); keep(root.dataset.theme); });

  const scenarios = all('article').map((article) => ({
    article,
    runs: all('.run', article),
    row: document.querySelector(`tr[data-s="${article.id}"]`),
    text: null,
  }));
  const filter = () => {
    const words = get('f-text').value.toLowerCase().split(/\s+/).filter(Boolean);
    const [topic, engine, verdict] = ['topic', 'engine', 'verdict'].map((name) => get('f-' + name).value);
    let shown = 0;
    for (const scenario of scenarios) {
      let fits = !topic || scenario.article.dataset.topic === topic;
      if (fits && words.length) {
        scenario.text ??= scenario.article.textContent.toLowerCase();
        fits = words.every((word) => scenario.text.includes(word));
      }
      let runs = 0;
      for (const run of scenario.runs) {
        run.hidden = Boolean((engine && !run.dataset.engine.split(' ').includes(engine)) || (verdict && run.dataset.verdict !== verdict));
        runs += !run.hidden;
      }
      fits &&= runs > 0 || !(engine || verdict);
      scenario.article.hidden = !fits;
      if (scenario.row) scenario.row.hidden = !fits;
      shown += fits;
    }
    for (const section of all('section.topic')) section.hidden = !section.querySelector('article:not([hidden])');
    for (const body of all('.matrix tbody')) body.hidden = !body.querySelector('tr[data-s]:not([hidden])');
    get('nothing').hidden = shown > 0;
    get('f-count').textContent = `${shown} of ${scenarios.length}`;
  };
  get('filter').addEventListener('input', filter);
  get('filter').addEventListener('submit', (event) => event.preventDefault());

  const open = get('f-open');
  open.addEventListener('click', () => {
    const shut = open.textContent === 'Open all';
    for (const run of all('.run')) run.open = shut && !run.hidden && !run.closest('[hidden]');
    open.textContent = shut ? 'Close all' : 'Open all';
  });

  // A link to a run opens it.
  const reveal = () => {
    const target = location.hash && get(location.hash.slice(1));
    const run = target && target.closest('.run');
    if (run) { run.open = true; run.scrollIntoView({ block: 'start' }); }
  };
  addEventListener('hashchange', reveal);

  get('filter').hidden = false;
  filter();
  reveal();
})();
