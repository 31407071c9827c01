/**
 * The engine's own checks, as a command for any WASI runtime:
 * ```
 *   selftest [check]        every check, in TAP; exit code 1 when one fails
 *   selftest bench <name>   a micro-benchmark inside WebAssembly: keys, icrc, layout
 * ```
 * Exit code 2 means that nothing was run: the arguments were wrong.
 */
import { benchIcrc } from './selftest/bench-icrc';
import { benchKeys } from './selftest/bench-keys';
import { benchLayout } from './selftest/bench-layout';
import { checkCache } from './selftest/cache';
import { checkCrypto } from './selftest/crypto';
import { checkDomains } from './selftest/domains';
import { checkFastRegions } from './selftest/fast-regions';
import { checkIcrc } from './selftest/icrc';
import { checkJobs } from './selftest/jobs';
import { checkKeys } from './selftest/keys';
import { checkLayoutPrograms } from './selftest/layout-programs';
import { checkLayouts } from './selftest/layouts';
import { FREE, LOW_END, OPCODE_TABLE } from './selftest/memory';
import { checkOperations } from './selftest/operations';
import { checkPackets } from './selftest/packet';
import { checkPaths } from './selftest/paths';
import { checkRetransmitTimer } from './selftest/retransmit-timer';
import { checkStates } from './selftest/states';
import { begin, end, finish, same } from './selftest/tap';
import { checkTimers } from './selftest/timers';
import { checkOpcodes, checkPsn, checkSyndrome } from './selftest/wire';
import { initOpcodeTable } from './wire/opcode';

const USAGE = 'usage: selftest [check] | selftest bench keys|icrc|layout';
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

/** Every group, in the order of the data: wire first. New groups are called here. */
function check(): i32 {
  begin('the structures of the checks end below the memory of AssemblyScript');
  same(u64(FREE <= LOW_END), 1, 'FREE', FREE);
  same(u64(__heap_base >= LOW_END), 1, '__heap_base', __heap_base);
  end();
  initOpcodeTable(OPCODE_TABLE);
  checkPsn();
  checkSyndrome();
  checkOpcodes();
  checkOperations();
  checkPackets();
  checkIcrc();
  checkCrypto();
  checkKeys();
  checkDomains();
  checkLayouts();
  checkLayoutPrograms();
  checkFastRegions();
  checkCache();
  checkStates();
  checkJobs();
  checkPaths();
  checkRetransmitTimer();
  checkTimers();
  checkNull();
  return finish() ? EXIT_FAILED : 0;
}

/** Address 0 stands for "none": a word behind it that is not 0 would be some object's field. */
function checkNull(): void {
  begin('nothing is written at address 0, or in the kilobyte behind it');
  for (let at: usize = 0; at < 1024; at += 8) same(load<u64>(at), 0, 'word', at);
  end();
}

/** Each prints its figures as one line of JSON, nanoseconds per operation. */
function bench(name: string): i32 {
  if (name == 'keys') benchKeys();
  else if (name == 'icrc') benchIcrc();
  else if (name == 'layout') benchLayout();
  else return refuse(USAGE);
  return 0;
}

/** By the stream itself: console.error of the shim writes to standard output. */
function refuse(sentence: string): i32 {
  process.stderr.write(sentence + '\n');
  return EXIT_USAGE;
}

function main(): i32 {
  const argv = process.argv;
  const command = argv.length > 1 ? argv[1] : 'check';
  if (command == 'check' && argv.length <= 2) return check();
  if (command == 'bench' && argv.length == 3) return bench(argv[2]);
  return refuse(USAGE);
}

const exitCode = main();
if (exitCode) process.exit(exitCode);
