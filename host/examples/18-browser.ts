/**
 * A Node program whose memory a page reads and shows; the program takes no part. Run it,
 * and open http://127.0.0.1:8080 in a browser.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { AccessFlag, DataChannelLink, answerRequest, listen, openDevice } from '../index.js';

const SCRIPT = `
  import { DataChannelLink, WrOpcode, SendFlag, connect, openDevice } from '/verbena/index.js';
  const link = new DataChannelLink();
  const context = await openDevice({ link, memoryBytes: 2 ** 23 });
  const server = await link.connect('/signal');
  const connection = await connect({ address: String(server.gid), port: 7 }, { context });
  const received = JSON.parse(new TextDecoder().decode(connection.privateData).replace(/\\0+$/, ''));
  const memory = context.alloc(8);
  const { addr, lkey } = connection.pd.regMr(memory, 1 /* LOCAL_WRITE */);
  const rdma = { remoteAddr: BigInt(received.addr), rkey: received.rkey };
  for (;;) {
    const sgList = [{ addr, length: 8, lkey }];
    connection.qp.postSend({ opcode: WrOpcode.RDMA_READ, sgList, rdma, sendFlags: SendFlag.SIGNALED });
    await connection.sendCq.wait();
    const value = new DataView(memory.buffer, memory.byteOffset).getFloat64(0, true);
    document.querySelector('h1').textContent = 'The server has been up ' + value.toFixed(1) + ' s';
    await new Promise(requestAnimationFrame);
  }
`;
const PAGE = `<!doctype html><meta charset="utf-8"><title>a server's memory</title><h1></h1>
<script type="module">${SCRIPT}</script>`;
// The page runs this script, what this server has, and nothing else; no other page frames it.
const hash = createHash('sha256').update(SCRIPT).digest('base64');
const POLICY = `default-src 'none'; script-src 'self' 'sha256-${hash}' 'wasm-unsafe-eval'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'`;

const link = new DataChannelLink();
const context = await openDevice({ link });
const pd = context.allocPd();
const memory = context.alloc(8);
const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ);
const uptime = new Float64Array(memory.buffer, memory.byteOffset, 1);
setInterval(() => (uptime[0] = performance.now() / 1000), 10);

const bundle = new URL('../../browser/', import.meta.url);
const http = createServer((request, response) => {
  const [, folder, name = ''] = request.url!.split('/');
  response.setHeader('x-content-type-options', 'nosniff');
  response.setHeader('referrer-policy', 'no-referrer');
  if (folder === 'signal') void answerRequest(link, request, response);
  else if (folder === 'verbena' && /^(index\.js|engine\.wasm)$/.test(name)) {
    const type = name === 'index.js' ? 'text/javascript' : 'application/wasm';
    response.setHeader('content-type', type);
    createReadStream(new URL(name, bundle)).pipe(response);
  } else {
    response.setHeader('content-security-policy', POLICY);
    response.setHeader('content-type', 'text/html').end(PAGE);
  }
});
const port = Number(process.argv[2] ?? 8080);
http.listen({ host: '127.0.0.1', port, exclusive: true }, () => console.log(http.address()));

const privateData = new TextEncoder().encode(JSON.stringify({ addr: `${mr.addr}`, rkey: mr.rkey }));
const listener = await listen({ address: `${context.local.gid}`, port: 7 }, { context });
for await (const connection of listener.connections({ pd, privateData })) {
  void connection.disconnected.then(() => connection.close());
}
