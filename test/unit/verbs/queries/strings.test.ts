/** Enum members in words, and numbers from numbers. */
import * as assert from 'uvu/assert';
import {
  AsyncEvent,
  NodeType,
  PortState,
  WcStatus,
  WrOpcode,
  eventTypeStr,
  importDevice,
  nodeTypeStr,
  portStateStr,
  wcStatusStr,
  wrOpcodeStr,
} from '../../../../host/index.js';
import { test } from '../../../support/suite.js';

test('every member has words of its own, and no abbreviation in capitals', () => {
  for (const [table, str] of [
    [WcStatus, wcStatusStr],
    [WrOpcode, wrOpcodeStr],
    [AsyncEvent, eventTypeStr],
    [NodeType, nodeTypeStr],
    [PortState, portStateStr],
  ] as const) {
    const values = Object.values(table as { [name: string]: number });
    const words = values.map((value) => str(value));
    assert.is(new Set(words).size, values.length, words.join());
    for (const sentence of words) assert.not.match(sentence, /\b(ERR|LOC|REM|EXC|REQ|INV)\b/i);
  }
});

test('words for what programs print most', () => {
  assert.is(wcStatusStr(WcStatus.SUCCESS), 'success');
  assert.is(wcStatusStr(WcStatus.REM_ACCESS_ERR), 'remote access error');
  assert.is(wcStatusStr(WcStatus.RNR_RETRY_EXC_ERR), 'receiver not ready retry exceeded error');
  assert.is(wrOpcodeStr(WrOpcode.SEND_WITH_INV), 'send with invalidate');
  assert.is(eventTypeStr(AsyncEvent.QP_LAST_WQE_REACHED), 'queue pair last work request reached');
  for (const str of [wcStatusStr, wrOpcodeStr, eventTypeStr, nodeTypeStr, portStateStr]) {
    assert.is(str(12345), 'unknown');
  }
});

test('importing a device is refused', async () => {
  let error: unknown;
  await importDevice(3).catch((thrown: unknown) => (error = thrown));
  assert.match(String(error), /EOPNOTSUPP/);
});
