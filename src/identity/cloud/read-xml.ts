/**
 * Reads elements of a small XML document that have no attributes and no nesting.
 */
import { InputError, type PeerInput } from "../../base/peer-inputs.ts";

/** Returns the text of the first such element. Throws an InputError if the document exceeds a limit. */
export function readXmlElement(input: PeerInput<"XML">, text: string, name: string): string | undefined {
  if (text.length > input.maxBytes) throw InputError.tooLarge(input);
  const open = `<${name}>`;
  for (let at = text.indexOf(open); at >= 0; at = text.indexOf(open, at + 1)) {
    const start = at + open.length;
    const end = text.indexOf("<", start);
    if (end >= 0 && text.startsWith(`</${name}>`, end)) return text.slice(start, end);
  }
  return undefined;
}
