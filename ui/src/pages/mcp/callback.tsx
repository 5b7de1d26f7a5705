/**
 * Implements the redirect page of the sign-in window. It sends the result to the page that opened it and closes.
 */
import { useEffect } from "preact/hooks";
import { param } from "../../frame/router.ts";
import { Empty } from "../../parts/panel.tsx";
import { LOGIN_CHANNEL, type LoginResult } from "./login.ts";

export function Callback() {
  const error = param("error");
  useEffect(() => {
    const channel = new BroadcastChannel(LOGIN_CHANNEL);
    const description = param("error_description");
    const result: LoginResult = {
      state: param("state") || null,
      code: param("code") || null,
      error: error === "" ? null : `${error}${description === "" ? "" : `: ${description}`}`,
    };
    channel.postMessage(result);
    channel.close();
    // Removes the one-time code from the browser history.
    history.replaceState(null, "", "/ui/callback");
    if (error === "") window.close();
  }, [error]);
  return (
    <Empty
      title={error === "" ? "Signed in. You can close this window." : `The provider rejected the login: ${error}`}
    />
  );
}
