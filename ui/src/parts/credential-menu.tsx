/**
 * Selects the credential of a playground: none, a token, a stored API key, or any header.
 */
import { credential, rememberedKey, rememberKey } from "../data/credential.ts";
import { usePoll } from "../data/poll.ts";
import { storedKeys } from "../data/stored-keys.ts";
import { visible } from "./format.ts";
import { Popover } from "./popover.tsx";

const KEY = "key:";

export function CredentialMenu() {
  return (
    <Popover label={`Credential: ${sourceText()}`} title="Credential">
      <CredentialForm />
    </Popover>
  );
}

function sourceText(): string {
  const { source, header } = credential.value;
  if (source === "none" || source === "token") return source;
  if (source === "header") return visible(header);
  const id = source.slice(KEY.length);
  return visible(storedKeys.value.value?.find((key) => key.id === id)?.name ?? id);
}

function CredentialForm() {
  const keys = (usePoll(storedKeys) ?? []).filter(({ expired }) => expired !== true);
  const { source, header, value } = credential.value;
  const keyId = source.startsWith(KEY) ? source.slice(KEY.length) : undefined;
  return (
    <form class="stack" onSubmit={(event) => event.preventDefault()}>
      <label class="field">
        <span>Send with each request</span>
        <select
          class="input"
          value={source}
          onChange={({ currentTarget: { value: next } }) => {
            const secret = next.startsWith(KEY) ? rememberedKey(next.slice(KEY.length)) : "";
            credential.value = { source: next, header, value: secret };
          }}
        >
          <option value="none">No credential</option>
          <option value="token">Token or API key</option>
          {keys.length === 0 ? null : (
            <optgroup label="Stored API keys">
              {keys.map(({ id, name }) => (
                <option key={id} value={`${KEY}${id}`}>
                  {visible(name)} ({visible(id)})
                </option>
              ))}
            </optgroup>
          )}
          <option value="header">Another header</option>
        </select>
      </label>
      {source === "header" ? (
        <label class="field">
          <span>Header</span>
          <input
            class="input mono"
            value={header}
            onInput={(event) => {
              credential.value = { source, header: event.currentTarget.value, value };
            }}
          />
        </label>
      ) : null}
      {source === "none" ? null : (
        <label class="field">
          <span>{keyId === undefined ? "Value" : "Key"}</span>
          <input
            class="input mono"
            type="password"
            autocomplete="off"
            value={value}
            onInput={(event) => {
              credential.value = { source, header, value: event.currentTarget.value };
              if (keyId !== undefined) rememberKey(keyId, event.currentTarget.value);
            }}
          />
        </label>
      )}
      <p class="muted small">{noteText(source)}</p>
      <div class="row end">
        <button type="submit" class="button primary">
          Done
        </button>
      </div>
    </form>
  );
}

function noteText(source: string): string {
  if (source === "none") return "Requests are sent without a credential.";
  if (source === "header") return "Kept in this tab only.";
  if (source === "token") return "Sent as Authorization: Bearer. Kept in this tab only.";
  return "Keys created in this tab are filled in. Paste other keys: the gateway stores only their digests.";
}
