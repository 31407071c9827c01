/**
 * The package as a stranger gets it: packed, installed into an empty project without the
 * development dependencies, imported, type-checked, bundled, and its command run.
 */
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { root } from '../support/paths.js';
import type { Group, Report } from './group.js';
import { run, withFolder } from './tools.js';

const top = fileURLToPath(root);
const QUIET = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];

/** First program of an application; the same file for Node and for tsc. */
const PROGRAM = `
import { AccessFlag, SendFlag, WcStatusName, connect, listen, type RdmaRequest } from 'verbena';
import { rds, rpma, type QueuePair } from 'verbena';
import { createSocket } from 'verbena/dgram';

const listener = await listen('127.0.28.1:7471');
const served = listener.getRequest().then((request: RdmaRequest | undefined) => request!.accept());
const connection = await connect('127.0.28.1:7471', { device: { port: 0 } });
const there = await served;
const memory = there.context.alloc(8);
const mr = there.pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
const bytes = connection.context.alloc(3);
bytes.set([1, 2, 3]);
const local = connection.id.regMsgs(bytes);
connection.id.postWrite(1, bytes, local, SendFlag.SIGNALED, mr.addr, mr.rkey);
const completion = await connection.id.getSendComp();
const qp: QueuePair = connection.qp;
const types = [typeof rds, typeof rpma, typeof createSocket];
console.log(WcStatusName[completion!.status], memory.join(), qp.qpNum > 0, ...types);
await connection.close();
await listener.close();
`;
const SAYS = 'SUCCESS 1,2,3,0,0,0,0,0 true object object function';

const PAGE = `
import { BroadcastSignalling, DataChannelLink, connect, openDevice, share } from 'verbena/browser';
import type { Context, Remote } from 'verbena/browser';

const link = new DataChannelLink();
const context: Context = await openDevice({ link, memoryBytes: 16 * 2 ** 20 });
link.meet(new BroadcastSignalling('a room'));
console.log(context.alloc(64).length);
const server = await share('rdma://[fd00::1]:1', { table: new Float32Array(16) }, { context });
const array: Float32Array = server.memory.table;
const remote: Remote = await connect('rdma://[fd00::2]:1', { context });
await remote.memory.table!.write(0, new Uint8Array(array.buffer));
`;

/** How a project may have tsc find packages, and what it then says of modules. */
const RESOLUTIONS = { node16: 'node16', nodenext: 'nodenext', bundler: 'preserve' } as const;

/** As strict as tsc is, libraries' types looked at as well. */
async function check(project: string, file: string, options: object): Promise<void> {
  for (const [moduleResolution, module] of Object.entries(RESOLUTIONS)) {
    const config = join(project, `tsconfig.${moduleResolution}.json`);
    const how = { strict: true, skipLibCheck: false, noEmit: true, module, moduleResolution };
    const compilerOptions = { ...how, exactOptionalPropertyTypes: true, ...options };
    writeFileSync(config, JSON.stringify({ compilerOptions, files: [file] }));
    await run(process.execPath, [join(top, 'node_modules/typescript/bin/tsc'), '-p', config]);
  }
}

async function installed(report: Report, folder: string): Promise<string | undefined> {
  const project = join(folder, 'project');
  mkdirSync(project);
  writeFileSync(join(project, 'package.json'), '{"private":true,"type":"module"}\n');
  const packed = await report.check('npm pack', async () => {
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder, top]);
  });
  const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  if (!packed || archive === undefined) return undefined;
  const works = await report.check('npm install into an empty project', async () => {
    await run('npm', ['install', ...QUIET, '--prefix', project, join(folder, archive)], 300);
    const { dependencies } = JSON.parse(readFileSync(join(project, 'package.json'), 'utf8'));
    if (!('verbena' in dependencies)) throw new Error('it is not among the dependencies');
    // Packages that build and test Verbena are not among its dependencies.
    const strangers = ['typescript', 'assemblyscript', 'uvu', 'esbuild', 'prettier'];
    const found = readdirSync(join(project, 'node_modules')).filter((n) => strangers.includes(n));
    if (found.length > 0) throw new Error(`it brings ${found.join(', ')}`);
  });
  return works ? project : undefined;
}

export const packageGroup: Group = {
  name: 'package',
  tools: [],
  run: (report) =>
    withFolder(async (folder) => {
      const project = await installed(report, folder);
      if (project === undefined) return;
      const [program, page] = [join(project, 'program.ts'), join(project, 'page.ts')];
      writeFileSync(program, PROGRAM);
      writeFileSync(page, PAGE);
      const modules = join(project, 'node_modules');
      await report.check('npx verbena', async () => {
        const verbena = (...words: string[]) =>
          run('npx', ['--offline', '--no', '--prefix', project, 'verbena', ...words]);
        const { stdout } = await verbena('--help');
        if (!stdout.includes('Usage: verbena')) throw new Error(stdout);
        const info = JSON.parse((await verbena('devinfo', '--json')).stdout) as object;
        if (!('limits' in info)) throw new Error('devinfo has no limits');
      });
      await report.check('a program without types connects and writes', async () => {
        const outfile = join(project, 'program.mjs');
        await build({ entryPoints: [program], outfile, format: 'esm', target: 'node20' });
        const { stdout } = await run(process.execPath, [outfile]);
        if (stdout.trim() !== SAYS) throw new Error(stdout);
      });
      await report.check('tsc accepts a program of a page, with no types but its own', () =>
        check(project, 'page.ts', { types: [], lib: ['es2022', 'dom'], target: 'es2022' }),
      );
      await report.check('esbuild bundles the page by itself', async () => {
        const outfile = join(project, 'page.js');
        await build({
          entryPoints: [page],
          outfile,
          bundle: true,
          format: 'esm',
          logLevel: 'silent',
        });
      });
      await report.check('npm run docs has a page for each class, and the C names', async () => {
        await run('npm', ['run', '--prefix', top, '-s', 'docs', '--', '--logLevel', 'Error'], 300);
        const docs = join(top, 'build/docs');
        for (const name of ['QueuePair', 'CmId', 'FmrPool']) {
          const page = readFileSync(join(docs, `classes/verbena.${name}.html`), 'utf8');
          if (!page.includes('tsd-comment')) throw new Error(`${name} has no docstring`);
        }
        if (!readFileSync(join(docs, 'documents/C_names.html'), 'utf8').includes('ibv_reg_mr')) {
          throw new Error('the table of C names is not there');
        }
      });
      // The one package that a TypeScript program for Node has anyway.
      mkdirSync(join(modules, '@types'), { recursive: true });
      const { version } = JSON.parse(
        readFileSync(join(top, 'node_modules/@types/node/package.json'), 'utf8'),
      ) as { version: string };
      await report.check(
        'tsc accepts a program for Node, and every type that it names',
        async () => {
          await run(
            'npm',
            ['install', ...QUIET, '--prefix', project, `@types/node@${version}`],
            300,
          );
          await check(project, 'program.ts', { target: 'es2022', types: ['node'] });
        },
      );
    }),
};
