/**
 * A minimal browser for logins: follows redirects with cookies and fills in the form of the realm provider, until the
 * client's redirect URI is reached.
 */

export interface Browser {
  /** The callback's URL with its parameters. */
  visit(start: URL, redirectUri: string): Promise<URL>;
  /** One request with the cookies so far; redirects are not followed. */
  fetch(url: string | URL, init?: RequestInit): Promise<Response>;
}

export interface User {
  readonly username: string;
  readonly password: string;
}

const MAX_STEPS = 20;

export function openBrowser(user?: User): Browser {
  const cookies = new Map<string, string>();

  async function request(url: string | URL, init: RequestInit = {}): Promise<Response> {
    const headers = {
      cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; "),
      accept: "text/html",
      ...(init.headers as Record<string, string> | undefined),
    };
    const response = await fetch(url, { redirect: "manual", ...init, headers });
    for (const line of response.headers.getSetCookie()) {
      const [pair = ""] = line.split(";");
      const at = pair.indexOf("=");
      if (/;\s*max-age=0\b/i.test(line)) cookies.delete(pair.slice(0, at));
      else cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    return response;
  }

  return {
    fetch: request,
    async visit(start, redirectUri) {
      let url = start;
      let form: URLSearchParams | undefined;
      for (let step = 0; step < MAX_STEPS; step++) {
        const response = await request(url, form ? { method: "POST", body: form } : {});
        form = undefined;
        const location = response.headers.get("location");
        const page = await response.text();
        if (location !== null) {
          url = new URL(location, url);
          if (url.href.startsWith(redirectUri)) return url;
          continue;
        }
        const action = attribute(page, /<form[^>]*\saction="([^"]+)"/);
        if (!user || action === undefined)
          throw new Error(`${url.href} answered ${response.status}: ${page.slice(0, 300)}`);
        url = new URL(action, url);
        form = filledForm(page, user);
      }
      throw new Error("the login did not come to an end");
    },
  };
}

/** The login page asks for name and password, the consent page for a yes. */
function filledForm(page: string, user: User): URLSearchParams {
  const form = new URLSearchParams();
  for (const [input] of page.matchAll(/<input[^>]*type="hidden"[^>]*>/g)) {
    const name = attribute(input, /\sname="([^"]*)"/);
    if (name !== undefined) form.set(name, attribute(input, /\svalue="([^"]*)"/) ?? "");
  }
  if (/name="accept"/.test(page)) form.set("accept", "Yes");
  else {
    form.set("username", user.username);
    form.set("password", user.password);
  }
  return form;
}

function attribute(text: string, pattern: RegExp): string | undefined {
  return pattern.exec(text)?.[1]?.replaceAll("&amp;", "&");
}
