import DHT from 'bittorrent-dht';

const options = { bootstrap: false, concurrency: 4 };

export async function serve(address) {
  const dht = new DHT({ ...options, nodeId: Buffer.alloc(20, 1) });
  await new Promise((resolve) => dht.listen(5317, address, resolve));
}

export async function ask(address, say) {
  const dht = new DHT(options);
  await new Promise((resolve) => dht.listen(0, '127.0.0.1', resolve));
  dht.addNode({ host: address, port: 5317 });
  await new Promise((resolve) => dht.once('node', resolve));
  for (let index = 0; index < 10; index++) {
    const v = Buffer.from(`value ${index}`);
    const hash = await new Promise((resolve, reject) =>
      dht.put({ v }, (error, key) => (error ? reject(error) : resolve(key))),
    );
    const found = await new Promise((resolve, reject) =>
      dht.get(hash, { cache: false }, (error, value) => (error ? reject(error) : resolve(value))),
    );
    say(hash.toString('hex'), `${found.v}`);
  }
  await new Promise((resolve) => dht.destroy(resolve));
}
