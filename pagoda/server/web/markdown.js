// A little Markdown, as blocks over the source: every piece of text keeps its place in it, so that tokens can be found.
// Links, images and HTML stay the text they are.

const FENCE = /^\s{0,3}```(.*)$/;
const HEADING = /^(#{1,6}\s+)(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)/;
const QUOTE = /^>\s?/;
const INLINE = /(`+)([^`]+?)\1(?!`)|(\*\*|__)(?=\S)([^*_\n]+?)\3|(?<![\w*])\*(?=[^\s*])([^*\n]+?)\*(?![\w*])/g;

/** Lines with the places where they begin and end. */
function* linesOf(text) {
  let start = 0;
  while (start < text.length) {
    const end = text.indexOf("\n", start);
    yield { start, end: end < 0 ? text.length : end, text: text.slice(start, end < 0 ? text.length : end) };
    start = end < 0 ? text.length : end + 1;
  }
}

/** Blocks: {kind: paragraph, heading, code, quote, list}, each with its pieces or items. */
export function parse(text) {
  const blocks = [];
  let open = null; // the block that the next line may belong to
  for (const line of linesOf(text)) {
    if (open?.kind === "code") {
      if (/^\s{0,3}```\s*$/.test(line.text)) open = null;
      else {
        open.lines.push(line);
        open.end = line.end;
      }
      continue;
    }
    const [fence, heading, item] = [FENCE.exec(line.text), HEADING.exec(line.text), ITEM.exec(line.text)];
    if (fence) blocks.push((open = { kind: "code", start: line.start, end: line.end, lines: [] }));
    else if (!line.text.trim()) open = open?.kind === "list" ? open : null;
    else if (heading) {
      blocks.push({
        kind: "heading",
        start: line.start,
        end: line.end,
        pieces: inline(text, line.start + heading[1].length, line.end),
      });
      open = null;
    } else if (item) open = addItem(blocks, open, line, item, text);
    else open = addText(blocks, open, line, text);
  }
  return blocks;
}

function addItem(blocks, open, line, item, text) {
  const isOrdered = /\d/.test(item[2]);
  if (open?.kind !== "list" || (open.isOrdered !== isOrdered && !item[1])) {
    blocks.push((open = { kind: "list", isOrdered, start: line.start, end: line.end, items: [] }));
  }
  const depth = Math.min(2, Math.floor(item[1].length / 2));
  open.items.push({
    depth,
    value: isOrdered ? parseInt(item[2], 10) : null,
    pieces: inline(text, line.start + item[0].length, line.end),
  });
  open.end = line.end;
  return open;
}

function addText(blocks, open, line, text) {
  if (open?.kind === "list" && /^\s/.test(line.text)) {
    const from = line.start + line.text.length - line.text.trimStart().length;
    open.items
      .at(-1)
      .pieces.push({ start: line.start - 1, end: line.start, style: null }, ...inline(text, from, line.end));
    open.end = line.end;
    return open;
  }
  const quote = QUOTE.exec(line.text);
  const kind = quote ? "quote" : "paragraph";
  if (open?.kind !== kind) blocks.push((open = { kind, start: line.start, end: line.end, pieces: [] }));
  else open.pieces.push({ start: line.start - 1, end: line.start, style: null });
  open.pieces.push(...inline(text, line.start + (quote ? quote[0].length : 0), line.end));
  open.end = line.end;
  return open;
}

/** Pieces of one line: {start, end, style: null, code, strong or em}. */
function inline(text, start, end) {
  const pieces = [];
  const source = text.slice(start, end);
  let last = 0;
  for (const match of source.matchAll(INLINE)) {
    if (match.index > last) pieces.push({ start: start + last, end: start + match.index, style: null });
    const style = match[1] ? "code" : match[3] ? "strong" : "em";
    const mark = (match[1] ?? match[3] ?? "*").length;
    pieces.push({ start: start + match.index + mark, end: start + match.index + match[0].length - mark, style });
    last = match.index + match[0].length;
  }
  if (last < source.length) pieces.push({ start: start + last, end, style: null });
  return pieces;
}
