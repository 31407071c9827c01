/** Values of wrong types in public functions are MisuseErrors, which name the argument. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as library from '../../host/index.js';
import { rpma } from '../../host/index.js';

type Call = (value: never) => unknown;

/** Of each wrong value; some of them are right for some functions. */
const WRONG: readonly unknown[] = [undefined, null, 5, 'x', true, () => undefined, NaN];

/** An object without the members that the function reads is wrong as well. */
const CALLS: Readonly<Record<string, readonly [call: Call, argument: string]>> = {
  'rpma.peerNew': [rpma.peerNew, 'context'],
  'rpma.utilsIbvContextIsOdpCapable': [rpma.utilsIbvContextIsOdpCapable, 'context'],
  'rpma.encodeFlushRequest': [rpma.encodeFlushRequest, 'request'],
  'rpma.decodeFlushRequest': [rpma.decodeFlushRequest, 'bytes'],
  'rpma.decodeFlushResponse': [rpma.decodeFlushResponse, 'bytes'],
  'rpma.mrRemoteFromDescriptor': [rpma.mrRemoteFromDescriptor, 'descriptor'],
  'rpma.peerCfgFromDescriptor': [rpma.peerCfgFromDescriptor, 'descriptor'],
  'rpma.recoverLog': [rpma.recoverLog, 'image'],
  'rpma.newestLog': [rpma.newestLog, 'images'],
  fmrPools: [library.fmrPools, 'context'],
  regionsFor: [library.regionsFor, 'workload'],
  readPcap: [library.readPcap, 'bytes'],
  NvmeRamStore: [(value) => new library.NvmeRamStore(value, 4096), 'context'],
  createEventChannel: [library.createEventChannel, 'context'],
};

for (const [name, [call, argument]] of Object.entries(CALLS)) {
  test(`${name}: values of wrong types are misuse of ${argument}`, () => {
    for (const value of WRONG) {
      assert.throws(
        () => call(value as never),
        (error: unknown) => error instanceof library.MisuseError && error.argument === argument,
        String(value),
      );
    }
  });
}

test.run();
