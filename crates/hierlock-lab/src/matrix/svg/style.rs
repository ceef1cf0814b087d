//! How the heat map looks: its colours, light and dark, and its letters. All names are below one class,
//! so that it can stand inside a page without changing that.

/// Around everything.
pub(super) const PAD: usize = 28;

/// How wide a letter is, about, in hundredths of its size: there is nobody to ask before it is drawn.
const LETTER: usize = 58;

/// How wide a text of this size becomes, about.
pub(super) fn width_of(text: &str, size: usize) -> usize {
    text.chars().count() * size * LETTER / 100
}

pub(super) const STYLE: &str = "
.hierlock-matrix {
  --page: #ffffff; --ink: #1f2933; --soft: #66727f; --line: #d5dce3; --chip: #eff2f5;
  --level-0: #d3dbe3; --level-1: #e0e6ec; --level-2: #edf1f4;
  --granted: #eef1f4; --wait-0: #b93a0e; --wait-1: #ee7d2b; --wait-2: #fbc07c; --odd: #b9c2cb;
  --bad: #7a1fd0; --good: #1a7f4b;
  font-family: ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif;
}
@media (prefers-color-scheme: dark) {
  .hierlock-matrix {
    --page: #10161c; --ink: #e6ebf0; --soft: #93a0ad; --line: #2c3742; --chip: #1c252e;
    --level-0: #384552; --level-1: #2b3641; --level-2: #212a33;
    --granted: #1a222a; --wait-0: #ffb45e; --wait-1: #d9731f; --wait-2: #7d441b; --odd: #55616d;
    --bad: #d9a6ff; --good: #5bd197;
  }
}
.hierlock-matrix .page { fill: var(--page); }
.hierlock-matrix text { fill: var(--ink); font-size: 12px; }
.hierlock-matrix .title { font-size: 19px; font-weight: 650; }
.hierlock-matrix .head { font-size: 13px; font-weight: 600; }
.hierlock-matrix .soft { fill: var(--soft); }
.hierlock-matrix .axis { fill: var(--soft); font-size: 11px; }
.hierlock-matrix .id { text-anchor: middle; dominant-baseline: central; font-variant-numeric: tabular-nums; }
.hierlock-matrix .l0 { fill: var(--level-0); } .hierlock-matrix .l1 { fill: var(--level-1); }
.hierlock-matrix .l2 { fill: var(--level-2); }
.hierlock-matrix .granted { fill: var(--granted); } .hierlock-matrix .odd { fill: var(--odd); }
.hierlock-matrix .w0 { fill: var(--wait-0); } .hierlock-matrix .w1 { fill: var(--wait-1); }
.hierlock-matrix .w2 { fill: var(--wait-2); }
.hierlock-matrix .bad { stroke: var(--bad); stroke-width: 2.5; }
.hierlock-matrix .sign { fill: none; }
.hierlock-matrix .cross { stroke: var(--bad); stroke-width: 2.5; stroke-linecap: round; fill: none; pointer-events: none; }
.hierlock-matrix .chip { fill: var(--chip); }
.hierlock-matrix .chip-text { font-size: 11px; dominant-baseline: central; }
.hierlock-matrix .rule { stroke: var(--line); }
.hierlock-matrix .good-text { fill: var(--good); font-weight: 600; }
.hierlock-matrix .bad-text { fill: var(--bad); font-weight: 600; }
.hierlock-matrix .cell:hover { stroke: var(--ink); stroke-width: 1.5; }
";
