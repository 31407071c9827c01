import OSC from 'osc-js';

export async function serve(address, say) {
  const plugin = new OSC.DatagramPlugin({ type: 'udp4' });
  const osc = new OSC({ plugin });
  osc.on('/note', ({ args }) => say(...args));
  const opened = new Promise((resolve) => osc.on('open', resolve));
  osc.open({ host: address, port: 5314 });
  await opened;
}

export async function ask(address) {
  const osc = new OSC({ plugin: new OSC.DatagramPlugin({ send: { host: address, port: 5314 } }) });
  for (let index = 0; index < 50; index++) {
    osc.send(new OSC.Message('/note', index, 'velocity', index / 2));
    if (index % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
