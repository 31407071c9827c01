/** The guides that the page links, as pages beside it. markdown-it comes with typedoc. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import MarkdownIt from 'markdown-it';

export const GUIDES = ['REMOTE', 'DEMO', 'LINKS', 'PERSISTENCE', 'TUNING', 'WORKERS', 'POOLS'];

const markdown = new MarkdownIt({ html: false, linkify: false });

/** Writes `folder/NAME.html` of each. Links to guides that are not among them become text. */
export function writeGuides(folder) {
  mkdirSync(folder, { recursive: true });
  for (const name of GUIDES) {
    const text = readFileSync(`host/guide/${name}.md`, 'utf8');
    const [, title = name] = /^# (.+)$/m.exec(text) ?? [];
    const linked = text.replace(/\[([^\]]+)\]\(([^)]+)\)/g, (whole, label, target) => {
      const [, guide, rest = ''] = /^([A-Z-]+)\.md(#.*)?$/.exec(target) ?? [];
      return GUIDES.includes(guide) ? `[${label}](${guide}.html${rest})` : label;
    });
    writeFileSync(`${folder}/${name}.html`, pageOf(title, markdown.render(linked)));
  }
}

function pageOf(title, body) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<title>${title.replaceAll('&', '&amp;').replaceAll('<', '&lt;')} · Verbena</title>
<link rel="stylesheet" href="../style.css" />
<link rel="stylesheet" href="../guide.css" />
</head>
<body class="guide">
<p><a href="../index.html">Back to the demo</a></p>
${body}</body>
</html>
`;
}
