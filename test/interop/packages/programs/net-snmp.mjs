import snmp from 'net-snmp';

const OID = '1.3.6.1.2.1.1.5';

export async function serve(address) {
  const options = { port: 5304, address, disableAuthorization: true };
  const agent = snmp.createAgent(options, () => {});
  agent.getMib().registerProvider({
    name: 'sysName',
    type: snmp.MibProviderType.Scalar,
    oid: OID,
    scalarType: snmp.ObjectType.OctetString,
    maxAccess: snmp.MaxAccess['read-write'],
  });
  agent.getMib().setScalarValue('sysName', 'first');
  await new Promise((resolve) => setTimeout(resolve, 300));
}

export async function ask(address, say) {
  const session = snmp.createSession(address, 'public', { port: 5304, timeout: 3000 });
  const call = (how, ...words) =>
    new Promise((resolve, reject) =>
      session[how](...words, (error, found) => (error ? reject(error) : resolve(found))),
    );
  for (let index = 0; index < 10; index++) {
    const value = `name ${index}`;
    await call('set', [{ oid: `${OID}.0`, type: snmp.ObjectType.OctetString, value }]);
    const [found] = await call('get', [`${OID}.0`]);
    say(found.oid, found.value);
  }
  session.close();
}
