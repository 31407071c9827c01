/**
 * For typedoc: names the entry points as packages import them, and groups what they export by task.
 * Groups follow from the folder of a declaration, so no export needs a tag.
 */
import { Comment, CommentTag, Converter, ReflectionKind } from 'typedoc';

/** Entry points: as applications import them. */
const MODULES = {
  index: 'verbena',
  'browser/index': 'verbena/browser',
  browser: 'verbena/browser',
  'dgram/index': 'verbena/dgram',
  dgram: 'verbena/dgram',
  'dgram/offload': 'verbena/offload',
};

/** Tasks by folder of host; the longest prefix counts. */
const TASKS = [
  ['remote/', 'Memory by name: share and connect'],
  ['cm/', 'Connections'],
  ['verbs/layouts', 'Memory layouts'],
  ['verbs/queues', 'Queues and requests'],
  ['verbs/regions', 'Memory regions'],
  ['verbs/domains', 'Protection domains'],
  ['verbs/', 'Devices and verbs'],
  ['device/', 'Devices and verbs'],
  ['pmem/', 'Persistent memory'],
  ['link/capture', 'Captures and faults'],
  ['link/faults', 'Captures and faults'],
  ['engine/', 'Sentences and errors'],
  ['errors/', 'Sentences and errors'],
  ['link/', 'Links'],
  ['pool/', 'Region pools'],
  ['rpma/', 'Remote persistent memory (rpma)'],
  ['nvme/', 'NVMe over RDMA'],
  ['rds/', 'Reliable datagrams (rds)'],
  ['dgram/', 'Datagram sockets'],
];
/** ts.SymbolFlags.Class. */
const SYMBOL_FLAG_CLASS = 32;
const CONSTANTS = 'Constants and enums';

const GUIDES = 'Guides';

export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, (context) => {
    const { project } = context;
    for (const module of project.children ?? []) {
      module.name = MODULES[module.name] ?? module.name;
      for (const one of module.children ?? []) {
        showClass(context, one);
        addGroup(one, taskOf(project, one));
      }
    }
    for (const document of project.documents ?? []) {
      document.name = titleOf(document);
      addGroup(document, GUIDES);
    }
  });
}

/** A class that is exported as a type, because calls make it, is a class all the same. */
function showClass(context, reflection) {
  const isClass = context.getSymbolFromReflection(reflection)?.flags & SYMBOL_FLAG_CLASS;
  if (isClass && reflection.kindOf(ReflectionKind.Interface))
    reflection.kind = ReflectionKind.Class;
}

function addGroup(reflection, text) {
  const comment = (reflection.comment ??= new Comment());
  if (comment.blockTags.some(({ tag }) => tag === '@group')) return;
  comment.blockTags.push(new CommentTag('@group', [{ kind: 'text', text }]));
}

function taskOf(project, reflection) {
  const path = project.getSymbolIdFromReflection(reflection)?.fileName ?? '';
  const folder = String(path).split('/host/').at(-1);
  const found = TASKS.find(([prefix]) => folder.startsWith(prefix));
  if (found && !reflection.kindOf(ReflectionKind.Variable)) return found[1];
  return reflection.kindOf(ReflectionKind.Variable) ? CONSTANTS : (found?.[1] ?? CONSTANTS);
}

/** The first heading of a page. */
function titleOf({ name, content }) {
  const text = content.map((part) => part.text ?? '').join('');
  return /^# (.+)$/m.exec(text)?.[1] ?? name;
}
