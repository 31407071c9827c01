/** Copy and paste: texts that a person carries, and signalling that connects once. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  PasteSignalling,
  descriptionOf,
  replyTextOf,
  textOf,
} from '../../../host/demo/paste-signalling.js';
import { rejection } from '../../support/refusal.js';

const OFFER = { type: 'offer', sdp: 'v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=é\r\n' } as const;

test('a text comes back as it was, quoted and broken into lines too', () => {
  const text = textOf(OFFER);
  assert.equal(descriptionOf(text), OFFER);
  assert.equal(descriptionOf(`Look:\n> ${text.replace(/.{20}/g, '$&\n> ')}\n`), OFFER);
});

for (const text of ['', 'hello', 'verbena:', 'verbena:AAAA', `verbena:${btoa('7')}`]) {
  test(`"${text}" is no description`, () => {
    assert.throws(() => descriptionOf(text), /must be an invitation or a reply: paste it whole/);
  });
}

test('an invitation is answered by what is pasted, and connects once', async () => {
  const shown: string[] = [];
  const signalling = new PasteSignalling((text) => shown.push(text));
  const { signal } = new AbortController();
  const answering = signalling.exchange(OFFER, signal);
  assert.equal(descriptionOf(shown[0]!), OFFER);
  const answer = { type: 'answer', sdp: 'v=0' };
  signalling.accept(answer);
  assert.is(await answering, answer);
  const again = (await rejection(signalling.exchange(OFFER, signal))) as { code: string };
  assert.is(again.code, 'ECONNREFUSED');
});

test('a reply to another invitation is refused, and uses nothing up', async () => {
  const signalling = new PasteSignalling(() => {});
  const answering = signalling.exchange(OFFER, new AbortController().signal);
  const answer = { type: 'answer', sdp: 'v=0' } as const;
  const older = { ...OFFER, sdp: OFFER.sdp.replace('1 2', '0 2') };
  assert.throws(
    () => signalling.accept(descriptionOf(replyTextOf(answer, older))),
    /belongs to another invitation; paste the reply to the newest one/,
  );
  const reply = descriptionOf(replyTextOf(answer, OFFER));
  signalling.accept(reply);
  assert.is(await answering, reply);
  assert.throws(() => signalling.accept(reply), /reply was pasted already/);
});

test('an invitation that its page gives up is closed', async () => {
  const patience = new AbortController();
  const signalling = new PasteSignalling(() => {});
  const answering = signalling.exchange(OFFER, patience.signal);
  patience.abort(new Error('given up'));
  assert.match(`${await rejection(answering)}`, /given up/);
});

test.run();
