// The way to private members of torch's classes.
#pragma once

namespace graft {

/// An explicit instantiation may name private members ([temp.spec.general]): `template struct
/// Reveal<Tag, &Class::member_>;` makes `object.*reveal(Tag{})` that member. The tag declares `type`, the
/// type of the pointer to it, and the friend `type reveal(Tag)`.
template <class Tag, typename Tag::type member>
struct Reveal {
  friend typename Tag::type reveal(Tag) { return member; }
};

}  // namespace graft
