/**
 * Writes the custom section `as-bind_bindings`, in which as-bind's runtime looks up how to carry
 * strings and arrays across. as-bind 0.8.2 brings a transform of its own, but that one only works
 * with AssemblyScript 0.19. The section is JSON:
 * ```
 *   { typeIds: { "<class>": { id, byteSize } },
 *     importedFunctions: {},
 *     exportedFunctions: { "<name>": { returnType, parameters: [type, ...] } } }
 * ```
 * A type is the internal name of its class (`~lib/string/String`), or a basic type (`i32`).
 */
import { CommonFlags, ElementKind, SourceKind } from 'assemblyscript';
import { Transform } from 'assemblyscript/transform';

const SECTION = 'as-bind_bindings';

export default class AsBindTransform extends Transform {
  afterCompile(module) {
    const typeIds = {};
    const exportedFunctions = {};
    for (const [name, prototype] of exportsOfEntries(this.program)) {
      // Only what was compiled without type arguments can be called from outside.
      const signature = prototype.instances?.get('')?.signature;
      if (!signature) continue;
      const types = [signature.returnType, ...signature.parameterTypes];
      for (const type of types) collectTypeIds(type, typeIds);
      const [returnType, ...parameters] = types.map(typeName);
      exportedFunctions[name] = { returnType, parameters };
    }
    refuseImports(this.program);
    const bindings = { typeIds, importedFunctions: {}, exportedFunctions };
    module.addCustomSection(SECTION, new TextEncoder().encode(JSON.stringify(bindings)));
  }
}

/** Name and element of every function that an entry file exports, re-exported ones included. */
function exportsOfEntries(program) {
  const found = new Map();
  const collect = (file) => {
    for (const [name, element] of file.exports ?? []) {
      if (element.kind === ElementKind.FunctionPrototype) found.set(name, element);
    }
    for (const starred of file.exportsStar ?? []) collect(starred);
  };
  for (const file of program.filesByName.values()) {
    if (file.source.sourceKind === SourceKind.UserEntry) collect(file);
  }
  return found;
}

function typeName(type) {
  return type.getClass()?.internalName ?? type.toString();
}

function collectTypeIds(type, typeIds) {
  const classOf = type.getClass();
  if (!classOf) return;
  typeIds[classOf.internalName] = { id: classOf.id, byteSize: classOf.nextMemoryOffset };
  for (const argument of classOf.typeArguments ?? []) collectTypeIds(argument, typeIds);
}

/** We bind no imports; an error here is clearer than a TypeError inside as-bind. */
function refuseImports(program) {
  for (const element of program.elementsByDeclaration.values()) {
    const isOurs = !element.internalName.startsWith('~');
    if (
      isOurs &&
      element.kind === ElementKind.FunctionPrototype &&
      element.is(CommonFlags.Declare)
    ) {
      throw new Error(`${element.internalName}: the as-bind transform does not bind imports`);
    }
  }
}
