import coap from 'coap';

export async function serve(address) {
  const server = coap.createServer((request, response) => {
    response.setHeader('Content-Format', 'text/plain');
    // The last ones take several blocks.
    const isLong = Number(request.url.slice(1)) >= 18;
    response.end(`answer to ${request.url} ${request.payload} ${isLong ? 'x'.repeat(3000) : ''}`);
  });
  await new Promise((resolve) => server.listen(5309, address, resolve));
}

export async function ask(address, say) {
  const agent = new coap.Agent({ type: 'udp4' });
  for (let index = 0; index < 20; index++) {
    const response = await new Promise((resolve, reject) => {
      const options = {
        agent,
        hostname: address,
        port: 5309,
        pathname: `/${index}`,
        method: 'PUT',
      };
      const request = coap.request(options);
      request.on('response', resolve).on('error', reject);
      request.end(`question ${index}`);
    });
    say(response.code, `${response.payload}`);
  }
  agent.close();
}
