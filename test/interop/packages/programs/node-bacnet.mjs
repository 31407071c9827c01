import { once } from 'node:events';
import Bacnet from 'node-bacnet';

export async function serve(address) {
  const server = new Bacnet({ port: 5324, interface: address, broadcastAddress: address });
  server.on('error', () => {});
  server.on('readProperty', ({ payload, header, invokeId }) => {
    const { objectId, property } = payload;
    const value = { type: Bacnet.enum.ApplicationTag.REAL, value: objectId.instance / 2 };
    server.readPropertyResponse(header.sender, invokeId, objectId, property, [value]);
  });
  await Promise.race([
    once(server, 'listening'),
    new Promise((resolve) => setTimeout(resolve, 500)),
  ]);
}

export async function ask(address, say) {
  const client = new Bacnet({ port: 5325, interface: '127.0.0.1', apduTimeout: 3000 });
  client.on('error', () => {});
  for (let instance = 0; instance < 10; instance++) {
    const property = Bacnet.enum.PropertyIdentifier.PRESENT_VALUE;
    const read = await new Promise((resolve, reject) =>
      client.readProperty(
        { address: `${address}:5324` },
        { type: Bacnet.enum.ObjectType.ANALOG_INPUT, instance },
        property,
        (error, value) => (error ? reject(error) : resolve(value)),
      ),
    );
    say(read.values[0].value);
  }
  client.close();
}
