/**
 * The primary of a cluster with one worker, which runs a file to its end. Prints the number of
 * listen and bind calls that the worker delegated, and ends with the worker's exit code.
 *
 *     node build/test/interop/cluster/primary.js FILE
 */
import cluster from 'node:cluster';
import { fileURLToPath } from 'node:url';

const [exec = ''] = process.argv.slice(2);
const preload = fileURLToPath(new URL('./worker.js', import.meta.url));
cluster.setupPrimary({ exec, args: [], execArgv: ['--import', preload] });
const { process: worker } = cluster.fork();
let listens = 0;
worker.on('internalMessage', ({ act }: { readonly act?: string }) => {
  if (act === 'queryServer') listens++;
});
worker.on('exit', (code, signal) => {
  console.log(`primary: ${listens} listens for its worker, which ended with ${signal ?? code}`);
  process.exitCode = code ?? 1;
});
