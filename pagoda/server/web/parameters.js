// The form of parameters. An empty field is not sent: the server's own default holds.

const STORED = "pagoda-parameters";
const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "repetition_penalty",
  "presence_penalty",
  "frequency_penalty",
  "max_tokens",
  "seed",
];
const NUM_ALTERNATIVES = 5;

export class Parameters {
  constructor(form, onChange) {
    this.form = form;
    this.restore();
    form.addEventListener("input", () => {
      this.store();
      onChange();
    });
    form.addEventListener("reset", () =>
      setTimeout(() => {
        this.store();
        onChange();
      }),
    );
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  field(name) {
    return this.form.elements.namedItem(name);
  }

  get areValid() {
    return this.form.reportValidity();
  }

  get isTinted() {
    return this.field("tint").checked;
  }

  /** What holds where a field is empty, as the model's files recommend it. */
  showDefaults(recommended) {
    for (const [name, value] of Object.entries(recommended)) {
      const field = this.field(name);
      if (field) field.placeholder = String(Number(value.toPrecision(6)));
    }
  }

  /** Fields of the request's body. */
  body() {
    const body = {};
    for (const name of NUMBERS) if (this.field(name).value !== "") body[name] = Number(this.field(name).value);
    if (this.field("stop").value) body.stop = this.field("stop").value;
    if (this.field("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: NUM_ALTERNATIVES });
    return body;
  }

  system() {
    const text = this.field("system").value.trim();
    return text ? [{ role: "system", content: text }] : [];
  }

  store() {
    const values = [...this.form.elements]
      .filter((field) => field.name)
      .map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]);
    try {
      localStorage.setItem(STORED, JSON.stringify(Object.fromEntries(values)));
    } catch {
      /* then they last as long as the page */
    }
  }

  restore() {
    let values = {};
    try {
      values = JSON.parse(localStorage.getItem(STORED)) ?? {};
    } catch {
      /* damaged: the defaults will do */
    }
    for (const field of this.form.elements) {
      const value = values[field.name];
      if (field.type === "checkbox" && typeof value === "boolean") field.checked = value;
      else if (field.name && typeof value === "string") field.value = value;
    }
  }
}
