import sip from 'sip';

export async function serve(address) {
  sip.start({ address, port: 5321, tcp: false, udp: true }, (request) => {
    sip.send(sip.makeResponse(request, 200, 'Ok'));
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
}

let isStarted = false;

export async function ask(address, say) {
  const options = { address: '127.0.0.1', publicAddress: '127.0.0.1', port: 5322, tcp: false };
  if (!isStarted) sip.start({ ...options, udp: true }, () => {});
  isStarted = true;
  for (let index = 0; index < 10; index++) {
    const request = {
      method: 'OPTIONS',
      uri: `sip:${address}:5321;transport=udp`,
      headers: {
        to: { uri: `sip:${address}` },
        from: { uri: 'sip:127.0.0.1', params: { tag: `${index}` } },
        'call-id': `call-${index}`,
        cseq: { method: 'OPTIONS', seq: index },
      },
    };
    const { status, reason, headers } = await new Promise((resolve) => sip.send(request, resolve));
    say(status, reason, headers['call-id']);
  }
}
