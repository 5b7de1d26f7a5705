/** THE list of hostile inputs: every message that a peer can send, with the gateway's reader of it. */
import type { InputId } from "../../src/base/peer-inputs.ts";
import type { Group } from "./growth.ts";
import type { Hostile } from "./hostile.ts";
import { httpInputs } from "./readers/http.ts";

export const HOSTILE_INPUTS: Partial<Record<InputId, Hostile>> = {
  ...httpInputs,
};

const moduleOf = (name: string): string => new URL(`./readers/${name}.js`, import.meta.url).href;

/** Each group is counted in a thread that loads only its module. */
export const GROUPS: readonly Group[] = [{ module: moduleOf("http"), inputs: httpInputs }];
