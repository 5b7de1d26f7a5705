/**
 * What of a request the provider cannot be told (`unsupported`): left out and named to the client, passed as it is, or
 * refused. Members that change no answer are no loss and do not come here.
 */
import type { Members } from "../../json/json.ts";
import { TranslationError } from "./translation-error.ts";

export type Unsupported = "drop" | "pass" | "refuse";

export const NOT_SUPPORTED = "is not supported by the provider of this model";
/** More names would make a header that servers refuse. */
const MAX_NAMED = 20;
const MAX_NAME_CHARS = 80;

export class Losses {
  readonly #how: Unsupported;
  readonly #names = new Set<string>();
  readonly #passed: Record<string, unknown> = Object.create(null);

  constructor(how: Unsupported) {
    this.#how = how;
  }

  /** `param`: as the client wrote it, for example `seed` or `messages[0].name`. */
  lose(param: string, value: unknown, message = NOT_SUPPORTED): void {
    if (this.#how === "refuse") throw new TranslationError(param, message);
    // Only what stands at the top has a place in the provider's request.
    if (this.#how === "pass" && !/[.[]/.test(param)) this.#passed[param] = value;
    // Names come from the client and go into a header.
    else if (this.#names.size < MAX_NAMED) this.#names.add(param.slice(0, MAX_NAME_CHARS).replace(/[^\w.[\]$-]/g, "?"));
  }

  /** The names of what was left out. */
  get names(): readonly string[] {
    return [...this.#names];
  }

  /** The provider's request with what is passed as it is. */
  passInto(body: Members): Members {
    return { ...this.#passed, ...body };
  }
}
