/** Defences of the connection manager and of the commands: see defences.ts. */
import type { Changes } from './changes.js';

export const CONNECTION_DEFENCES: Changes = {
  'host/cm/path-mtus.ts': [
    [
      'a path MTU that was proved too large is used again',
      'unit/cm/path-mtus',
      'this.#limits.set(key, { mtu, isOfLink, untilMicros: now + KEPT_MICROS });',
      '',
    ],
    [
      'one proof leads to the smallest path MTU',
      'unit/cm/path-mtus',
      'isLarge ? Mtu.MTU_1024',
      'isLarge ? Mtu.MTU_256',
    ],
    [
      'packets that were proved too long are used again beside path MTU 1024',
      'unit/cm/long-payload',
      'limit === undefined || limit.isOfLink || now >= limit.untilMicros',
      'true',
    ],
  ],
  'host/rds/protocol/core.ts': [
    [
      'reliable datagrams: a node at another address need not show its token',
      'unit/rds/protocol/failover',
      'if (path.token === token && isNamed) return path;',
      'if (isNamed) return path;',
    ],
  ],
  'host/rds/protocol/path.ts': [
    [
      'reliable datagrams: a Linux peer that waits is not reached again',
      'unit/rds/protocol/failover',
      "if (this.kind === 'linux' && this.#wasUp) this.#isWanted = true;",
      '',
    ],
    [
      'reliable datagrams: the failure of a path gives up a Linux peer that waits',
      'unit/rds/protocol/failover',
      'this.#awaitedMicros = now + Math.max(silence, recoveryMicros);',
      '',
    ],
  ],
  'host/transfer/file-name.ts': [
    [
      'hidden files are put',
      'unit/cli/words',
      "if (name.startsWith('.')) return 'it begins with a dot';",
      '',
    ],
    ['a file name moves the cursor of a terminal', 'unit/cli/words', '[\\p{Cc}', '['],
    ['a file name looks like another one', 'unit/cli/words', '\\p{Cf}', ''],
  ],
  'host/cli/base/report.ts': [
    ['a peer writes to the terminal backwards', 'unit/cli/words', '\\p{Cf}', ''],
  ],
  'host/transfer/file-receiver.ts': [
    [
      'silent clients keep their places from other addresses',
      'cli/hostile',
      'if (this.#sessions.size >= clientsMax) await this.#makeRoom(session.remoteAddress);',
      '',
    ],
    [
      'connections of one source keep others out',
      'cli/hostile',
      `      if (!giveBack) {
`,
      `      if (!giveBack && remote === '') {
`,
    ],
    [
      'a server with a key takes requests without a proof',
      'cli/hostile',
      'listen(place, { context, ...(auth !== undefined && { auth }) })',
      'listen(place, { context })',
    ],
  ],
  'host/transfer/part-file.ts': [
    [
      'a name without a piece leaves two files',
      'cli/hostile',
      'if (this.synced.size === 0 || !part || !journal) return',
      'if (!part || !journal) return',
    ],
    [
      'a journal whose part is gone is kept, and believed',
      'unit/transfer/part-file',
      'if (this.synced.size === 0 || !part || !journal) return',
      'if (this.synced.size === 0) return',
    ],
  ],
  'host/transfer/limits.ts': [
    [
      'there is any number of unfinished files',
      'unit/transfer/served-directory',
      'index < beyond || ',
      '',
    ],
  ],
  'host/transfer/served-directory.ts': [
    [
      'a quota counts no file',
      'unit/transfer/served-directory',
      'if (found?.isFile()) used += found.size;',
      '',
    ],
  ],
  'host/cm/admission.ts': [
    [
      'requests: one address takes a whole backlog',
      'unit/cm/cookies',
      'waitingOf.of(source) >= Math.ceil(backlog / 2)',
      'false',
    ],
    [
      'requests: a crowded backlog sends no cookies',
      'unit/cm/cookies',
      '2 * waiting >= backlog || ',
      '',
    ],
    [
      'requests: unproven connections take all queue pairs',
      'unit/cm/cookies',
      'halfOpen.unproven < most || displace',
      'true || displace',
    ],
    [
      'requests: an unproven connection keeps its place for 10 s',
      'unit/cm/cookies',
      'if (!oldest) return false;',
      'if (oldest !== null) return false;',
    ],
    [
      'requests: half-open connections have no limit',
      'unit/cm/core',
      'halfOpen.size >= limits.halfOpenMax ||',
      '',
    ],
  ],
  'host/cm/auth-messages.ts': [
    [
      'auth: a listener with a key takes requests without',
      'unit/cm/auth',
      'return claim ? RejectReason.AUTH_UNKNOWN_KEY : RejectReason.AUTH_REQUIRED;',
      'return claim ? RejectReason.AUTH_UNKNOWN_KEY : undefined;',
    ],
    [
      'auth: a REQ with an old nonce is taken',
      'unit/cm/auth',
      'return [slot, slot - 1].some(',
      'return Array.from({ length: 9 }, (_, index) => slot - index).some(',
    ],
    [
      'auth: a REQ that is not encrypted is taken where encryption is required',
      'unit/cm/auth',
      'const isMeant = claim.encrypts || !rule.encrypts;',
      'const isMeant = true;',
    ],
    [
      'auth: an AUTH_REP without our nonce is believed',
      'unit/cm/auth',
      'isEqual(message.peerNonce, pending.nonceA);',
      'message.peerNonce.length > 0;',
    ],
    [
      'auth: messages about an authenticated connection need no tag',
      'unit/cm/auth',
      'const isRight = auth ? auth.verify(name, datagram) : !hasTrailer(datagram);',
      'const isRight = true;',
    ],
  ],
  'host/cm/auth-session.ts': [
    [
      'auth: both directions have one key',
      'unit/cm/auth',
      'const ofPassive = both.subarray(PACKET_KEY_BYTES);',
      'const ofPassive = ofActive;',
    ],
    [
      'auth: packet keys do not depend on queue pair numbers',
      'unit/cm/auth',
      'numbers(encrypts ? 1 : 0, ...pair),',
      'numbers(encrypts ? 1 : 0),',
    ],
    [
      'auth: packet keys do not depend on the nonce of the REP',
      'unit/cm/auth',
      'const salt = join(nonceA, nonceB, this.#nonceC!);',
      'const salt = join(nonceA, nonceB);',
    ],
    [
      'auth: a tag of any message is right',
      'unit/cm/auth',
      'if (!isEqual(tag, datagram.subarray(end))) return false;',
      '',
    ],
    [
      'a proof is of any connection',
      'unit/cli/base/exchange-key',
      'hkdf(key.bytes, join(nonceA, nonceB), info, 2 * KEY_BYTES)',
      'hkdf(key.bytes, join(nonceA), info, 2 * KEY_BYTES)',
    ],
  ],
  'host/cm/cm-id.ts': [
    [
      'every connection begins with the same PSN',
      'unit/verbs/entropy',
      'this.#startingPsn = manager.random() & PSN_MASK;',
      'this.#startingPsn = manager.random() & 0;',
    ],
  ],
  'host/cm/connect.ts': [
    [
      'one address takes all connections of a listener',
      'unit/cm/accepting',
      'if (this.#accepted.of(address) >= most) {',
      'if (most === 0) {',
    ],
  ],
  'host/cm/cookies.ts': [
    [
      'requests: any bytes are a cookie',
      'unit/cm/cookies',
      'secret !== undefined && isEqual(cookieOf(secret, message, peer), cookie)',
      'secret !== undefined && cookieOf(secret, message, peer).length === cookie.length',
    ],
    [
      'requests: a cookie is of any address',
      'unit/cm/cookies',
      'hmac(secret, context, peer.gid.bytes)',
      'hmac(secret, context)',
    ],
  ],
  'host/cm/core.ts': [
    [
      'ids of connections count',
      'unit/verbs/entropy',
      '(this.#options.random() & 0xffffff)',
      '(this.connections.size + 1 + draw)',
    ],
    [
      'a REP is retransmitted as often as the peer demands',
      'unit/cm/half-open',
      'connection.retriesLeft = Math.min(connection.retryMax, UNHEARD_RETRIES);',
      'connection.retriesLeft = connection.retryMax;',
    ],
    [
      'a half-open connection lasts until the last REP, not for 10 s',
      'unit/cm/half-open',
      "if (state === 'REP_SENT' && now < limit) {",
      "if (state === 'REP_SENT' && now === limit) {",
    ],
    [
      'a half-open connection lasts longer if the peer names long timeouts',
      'unit/cm/half-open',
      "const limit = state === 'REP_SENT' ? connection.halfOpenMicros : Infinity;",
      "const limit = state === 'REQ_SENT' ? connection.halfOpenMicros : Infinity;",
    ],
  ],
  'host/cm/end-point.ts': [
    [
      'completion queues of an id outlive its queue pair',
      'unit/cm/end-point',
      'for (const cq of this.#queues) cq.destroy();',
      '',
    ],
  ],
  'host/cm/general-services.ts': [
    [
      'messages are handled during the construction of a manager',
      'unit/cm/general-services',
      `    queueMicrotask(() => this.#drain());
  }`,
      `    this.#drain();
  }`,
    ],
    [
      'a flood at queue pair 1 blocks the event loop',
      'unit/cm/general-services',
      'if (heard >= TURN_BUDGET) return this.#pause();',
      '',
    ],
  ],
  'host/cm/incoming.ts': [
    [
      'the peer’s id is not looked at',
      'unit/cm/core',
      'return connection.remoteId === remoteId ? connection : undefined;',
      'return connection;',
    ],
    [
      'a disconnect request need not know the queue pair',
      'unit/cm/core',
      'if (message.remoteQpn !== connection.localQpn) {',
      'if (false) {',
    ],
    [
      'a REQ ends a live connection',
      'unit/cm/core',
      'doubt(core, now, stale);',
      "if (stale.state === 'ESTABLISHED') core.disconnect(now, stale);",
    ],
    [
      'a REJ without an id ends an established connection',
      'unit/cm/half-open',
      'return connection.remoteId === localCommId ? connection : undefined;',
      'return localCommId === 0 || connection.remoteId === localCommId ? connection : undefined;',
    ],
    [
      'a REJ with reason TIMEOUT ends an established connection',
      'unit/cm/half-open',
      'return asked && HALF_OPEN.has(asked.state) ? asked : undefined;',
      'return asked;',
    ],
    [
      'a peer selects the port of our answers',
      'unit/cm/core',
      'isOwnKind && udpPort === source.port ? udpPort : answerPort(source.port);',
      'isOwnKind ? udpPort : answerPort(source.port);',
    ],
  ],
  'host/cm/limits.ts': [
    [
      'one address takes the queue pairs of a device',
      'unit/cm/half-open',
      'halfOpenPerSourceMax: 128,',
      'halfOpenPerSourceMax: 2048,',
    ],
  ],
  'host/cm/mad.ts': [
    [
      'a datagram of another length is parsed',
      'unit/cm/mad',
      "if (view.byteLength !== MAD_BYTES) return 'LENGTH';",
      "if (view.byteLength < 24) return 'LENGTH';",
    ],
    ['another class is parsed', 'unit/cm/mad', 'if (view.getUint8(1) !== CM_CLASS)', 'if (false)'],
    [
      'another method is parsed',
      'unit/cm/mad',
      'if (view.getUint8(3) !== METHOD_SEND)',
      'if (false)',
    ],
  ],
  'host/verbs/refuse.ts': [
    [
      'keys and queue pair numbers are drawn from zeros',
      'unit/verbs/entropy',
      `    crypto.getRandomValues(drawn);
`,
      '',
    ],
    [
      'keys and queue pair numbers count',
      'unit/verbs/entropy',
      'bytes.set(bits, address);',
      'for (let at = 0; at < length; at += 4) bytes.set([used + at, 0, 0, 0], address + at);',
    ],
  ],
};
