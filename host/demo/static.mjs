/**
 * The demo for any web host: `npm run demo:static [folder]` copies build/demo there, for a page that
 * has no server of the demo behind it. Tabs of one origin meet by BroadcastChannel, others by copy
 * and paste. Default: build/demo-static.
 */
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const source = join(root, 'build/demo');
const folder = resolve(process.argv[2] ?? join(root, 'build/demo-static'));

/** Headers of the demo's server, as far as a page may set them itself. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

if (!existsSync(join(source, 'index.html'))) {
  console.error(`demo:static: ${source} is incomplete: npm run build`);
  process.exit(1);
}
rmSync(folder, { recursive: true, force: true });
cpSync(source, folder, { recursive: true, filter: (path) => !path.endsWith('.map') });
const page = join(folder, 'index.html');
const text = readFileSync(page, 'utf8')
  .replace('<html lang="en">', '<html lang="en" data-static>')
  .replace(
    '<meta charset="utf-8" />',
    `<meta charset="utf-8" />\n<meta http-equiv="Content-Security-Policy" content="${POLICY}" />`,
  );
writeFileSync(page, text);
console.log(
  `${folder}: copy it to a web host (HTTPS, or localhost) and open index.html in two tabs`,
);
