import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tftp from 'tftp';

const BYTES = 300_000;

export async function serve(address) {
  const root = mkdtempSync(join(tmpdir(), 'verbena-tftp-'));
  process.on('exit', () => rmSync(root, { recursive: true }));
  writeFileSync(join(root, 'file'), Buffer.alloc(BYTES, 'some text '));
  const server = tftp.createServer({ host: address, port: 5310, root, denyPUT: true });
  server.on('error', () => {});
  await new Promise((resolve) => {
    server.on('listening', resolve);
    server.listen();
  });
}

export async function ask(address, say) {
  const client = tftp.createClient({ host: address, port: 5310, timeout: 5000 });
  const file = join(tmpdir(), `verbena-tftp-${process.pid}`);
  try {
    await new Promise((resolve, reject) =>
      client.get('file', file, (error) => (error ? reject(error) : resolve())),
    );
    say(createHash('sha256').update(readFileSync(file)).digest('hex'));
  } finally {
    rmSync(file, { force: true });
  }
}
