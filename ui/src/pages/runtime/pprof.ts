/**
 * Parses a pprof profile (gzipped Protocol Buffers) into a tree of frames for a flame graph.
 */
export interface Frame {
  readonly name: string;
  readonly file: string;
  /** The total is in the profile's unit and includes all children. */
  total: number;
  self: number;
  readonly children: Map<string, Frame>;
}

export interface Profile {
  readonly root: Frame;
  readonly unit: string;
}

export async function readProfile(zipped: ArrayBuffer): Promise<Profile> {
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  return decode(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function decode(bytes: Uint8Array): Profile {
  const strings: string[] = [];
  const types: { type: number; unit: number }[] = [];
  const samples: { locations: number[]; values: number[] }[] = [];
  const locations = new Map<number, number[]>();
  const functions = new Map<number, { name: number; file: number }>();
  for (const field of fields(bytes)) {
    if (field.number === 6) strings.push(new TextDecoder().decode(field.bytes));
    else if (field.number === 1) types.push({ type: numberIn(field.bytes, 1), unit: numberIn(field.bytes, 2) });
    else if (field.number === 2)
      samples.push({ locations: numbersIn(field.bytes, 1), values: numbersIn(field.bytes, 2) });
    else if (field.number === 4) {
      const lines = [...fields(field.bytes)].filter(({ number }) => number === 4);
      locations.set(
        numberIn(field.bytes, 1),
        lines.map((line) => numberIn(line.bytes, 1)),
      );
    } else if (field.number === 5)
      functions.set(numberIn(field.bytes, 1), { name: numberIn(field.bytes, 2), file: numberIn(field.bytes, 4) });
  }
  const text = (index: number): string => strings[index] ?? "";
  // Prefers CPU time or bytes in use. Otherwise uses the last sample type.
  const wanted = types.findIndex(({ type }) => /^cpu$|^inuse_space$|^space$/.test(text(type)));
  const value = wanted < 0 ? types.length - 1 : wanted;
  const root: Frame = { name: "all", file: "", total: 0, self: 0, children: new Map() };
  for (const sample of samples) {
    const amount = sample.values[value] ?? 0;
    if (amount === 0) continue;
    const stack = sample.locations.flatMap((id) => locations.get(id) ?? []).map((id) => functions.get(id));
    // Idle time would dominate the graph.
    if (stack.some((one) => text(one?.name ?? 0) === "(idle)")) continue;
    let frame = root;
    root.total += amount;
    // Samples list the innermost call first.
    for (const one of stack.toReversed()) {
      const name = text(one?.name ?? 0) || "(anonymous)";
      const file = text(one?.file ?? 0);
      const key = `${name}\n${file}`;
      const child = frame.children.get(key) ?? { name, file, total: 0, self: 0, children: new Map() };
      frame.children.set(key, child);
      child.total += amount;
      frame = child;
    }
    frame.self += amount;
  }
  return { root, unit: text(types[value]?.unit ?? 0) };
}

interface Field {
  readonly number: number;
  /** Set for numeric fields. All other fields have `bytes`. */
  readonly value: number;
  readonly bytes: Uint8Array;
}

const NOTHING = new Uint8Array();

function* fields(bytes: Uint8Array): Generator<Field> {
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const wire = tag & 7;
    const number = Math.floor(tag / 8);
    if (wire === 0) yield { number, value: varint(), bytes: NOTHING };
    else if (wire === 2) {
      const length = varint();
      yield { number, value: 0, bytes: bytes.subarray(at, at + length) };
      at += length;
    } else at += wire === 1 ? 8 : 4;
  }
}

function numberIn(bytes: Uint8Array, number: number): number {
  return numbersIn(bytes, number)[0] ?? 0;
}

/** Repeated numbers can be packed or unpacked. */
function numbersIn(bytes: Uint8Array, number: number): number[] {
  const values: number[] = [];
  for (const field of fields(bytes)) {
    if (field.number !== number) continue;
    if (field.bytes.length === 0) values.push(field.value);
    else values.push(...packed(field.bytes));
  }
  return values;
}

function packed(bytes: Uint8Array): number[] {
  const values: number[] = [];
  let value = 0;
  let factor = 1;
  for (const byte of bytes) {
    value += (byte & 0x7f) * factor;
    factor *= 128;
    if (byte >= 0x80) continue;
    values.push(value);
    value = 0;
    factor = 1;
  }
  return values;
}
